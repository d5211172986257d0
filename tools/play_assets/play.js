// What both pages have: light and dark, a choice, a file of one's own, and steps by buttons, slider
// and keys. All that is shown was computed by the course's programs; here it is only drawn.
'use strict';

const look = document.documentElement.dataset;
try { look.theme = localStorage.getItem('theme') ?? ''; } catch { /* nothing is kept here */ }
const part = (id) => document.getElementById(id);
const count = (n, what) => `${n} ${what}${n === 1 ? '' : 's'}`;

function element(tag, attributes, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
}

function drawing(tag, attributes, ...inside) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
}

function options(select, names) {
  const before = select.value;
  select.replaceChildren(...names.map((name) => element('option', {value: name}, name)));
  if (names.includes(before)) select.value = before;
}

function complain(text) {
  part('problem').textContent = text;
  part('problem').hidden = !text;
}

addEventListener('DOMContentLoaded', () => {
  document.querySelector('.theme').addEventListener('click', () => {
    const system = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
    const other = (look.theme || system) === 'dark' ? 'light' : 'dark';
    look.theme = other === system ? '' : other;
    try { localStorage.setItem('theme', look.theme); } catch { /* likewise */ }
  });
});

// Lets a page step: show(k) draws step k of those up to last(); opened(json, name) takes a file, or
// throws what is wrong with it. Returns go(k).
function stepping({last, show, opened}) {
  const slider = part('slider');
  let now = 0;
  const go = (k) => {
    now = Math.max(0, Math.min(last(), k));
    slider.max = last();
    slider.value = now;
    for (const [id, end] of [['first', 0], ['back', 0], ['forward', last()], ['last', last()]])
      part(id).setAttribute('aria-disabled', now === end);
    show(now);
    slider.setAttribute('aria-valuetext', part('count').textContent);
  };
  const moves = {first: () => 0, back: () => now - 1, forward: () => now + 1, last: () => last()};
  for (const id in moves) part(id).addEventListener('click', () => go(moves[id]()));
  slider.addEventListener('input', () => go(Number(slider.value)));
  const keys = {Home: 'first', ArrowLeft: 'back', ArrowRight: 'forward', End: 'last'};
  addEventListener('keydown', (event) => {
    if (!keys[event.key] || event.target.tagName === 'SELECT') return;
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    go(moves[keys[event.key]]());
  });
  part('file').addEventListener('change', () => {
    const file = part('file').files[0], reader = new FileReader();
    reader.onload = () => {
      try {
        complain('');
        opened(JSON.parse(reader.result), file.name.replace(/\.json$/, ''));
      } catch (error) { complain(`${file.name} is nothing that this page shows: ${error.message}`); }
      part('file').dataset.read = file.name;
    };
    if (file) reader.readAsText(file);
  });
  addEventListener('resize', () => show(now));
  return go;
}
