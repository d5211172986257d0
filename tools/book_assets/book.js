// The book's switch between light and dark, and its search. What is searched comes as a script,
// since a page that lies on the disk may not fetch.
'use strict';

const BASE = new URL('.', document.currentScript.src);
const MOST_PLACES = 30, MOST_LETTERS = 260;
const chosen = document.documentElement.dataset;
try { chosen.theme = localStorage.getItem('theme') ?? ''; } catch { /* nothing is kept here */ }

// To the other one, which is kept, unless it is what the system has.
function turn() {
  const system = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  const other = (chosen.theme || system) === 'dark' ? 'light' : 'dark';
  chosen.theme = other === system ? '' : other;
  try { localStorage.setItem('theme', chosen.theme); } catch { /* likewise */ }
}

// What finds a word, or one that begins so; all-reduce finds all_reduce, too.
function beginning(word) {
  const plain = word.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&').replace(/[-_]/g, '[-_ ]');
  return new RegExp(`(?<![\\p{L}\\p{N}])${plain}`, 'iu');
}

// The places that have all words, the best first, each with its line from the sentence on that has
// most of them. A heading counts more than a title, and a sentence that begins with a word, as in
// the glossary, more than others.
function search(words) {
  const places = [], count = (text) => words.filter((word) => word.test(text)).length;
  for (const [url, title, sections] of BOOK)
    for (const [anchor, heading, text] of sections) {
      if (count(`${title}\n${heading}\n${text}`) < words.length) continue;
      let said = '', most = 0;
      for (const line of text.split('\n'))
        for (const {0: sentence, index} of line.matchAll(/.+?([.?!:] |$)/g)) {
          const here = count(sentence) + words.some((word) => sentence.search(word) === 0) / 2;
          if (here > most) [said, most] = [line.slice(index), here];
        }
      const where = heading && heading !== title ? `${title} › ${heading}` : title;
      places.push({url: new URL(url + (anchor && `#${anchor}`), BASE), where, said: said || text,
        score: 4 * count(heading) + 2 * count(title) + most});
    }
  return places.sort((a, b) => b.score - a.score);
}

function element(tag, ...inside) {
  const made = document.createElement(tag);
  made.append(...inside);
  return made;
}

function show(box, query) {
  const words = query.split(/\s+/).filter(Boolean).map(beginning);
  const places = words.length ? search(words) : [];
  const hit = new RegExp(`(${words.map((word) => word.source).join('|')})`, 'iu');
  box.hidden = !words.length;
  box.replaceChildren(element('p', `${places.length} ${places.length === 1 ? 'place' : 'places'}`),
    ...places.slice(0, MOST_PLACES).map(({url, where, said}) => {
      const from = Math.max(0, said.search(hit) - MOST_LETTERS / 2), end = from + MOST_LETTERS;
      const marked = said.slice(from, end).split(hit).map((piece, i) =>
        i % 2 ? element('mark', piece) : piece);
      const link = element('a', element('b', where), from ? '… ' : '', ...marked,
        end < said.length ? ' …' : '');
      link.href = url;
      return link;
    }));
}

addEventListener('DOMContentLoaded', () => {
  const [input, box, theme, nav] = ['input', '.found', '.theme', 'nav'].map((name) =>
    document.querySelector(name));
  const within = (element) => input.parentNode.contains(element);
  input.parentNode.hidden = theme.hidden = false;  // what needs a script is shown by it
  theme.addEventListener('click', turn);
  nav.scrollTop = (nav.querySelector('[aria-current]')?.offsetTop ?? 0) - 80;
  nav.addEventListener('click', (event) => {
    if (event.target.hash && nav.matches(':popover-open')) nav.hidePopover();
  });
  const read = () => { if (window.BOOK) show(box, input.value); };
  input.addEventListener('input', read);
  input.addEventListener('focus', () => {
    if (window.BOOK) return read();
    const index = document.head.appendChild(element('script'));
    index.onload = read;
    index.src = new URL('search.js', BASE);
  });
  addEventListener('click', (event) => { if (!within(event.target)) box.hidden = true; });
  addEventListener('keydown', (event) => {
    if (event.key === '/' && !within(document.activeElement)) input.focus();
    else if (event.key === 'Escape' && !box.hidden) box.hidden = true;
    else if (event.key === 'Enter' && event.target === input) box.querySelector('a')?.click();
    else return;
    event.preventDefault();
  });
});
