// Shows rows of a table of layouts (11_gpt_3d/calculator.cpp has the form): bytes and seconds as bars
// and as numbers, one layout beside another, and all that fit.
'use strict';

addEventListener('DOMContentLoaded', () => {
  const {machines, models, rows} = window.LAYOUTS;
  const DIMENSIONS = {model: 'Model', machine: 'Machine', dp: 'dp', tp: 'tp', pp: 'pp', cp: 'cp',
    ep: 'ep', zero: 'ZeRO', recompute: 'Recompute'};
  const NAMES = Object.keys(DIMENSIONS), DEGREES = ['dp', 'tp', 'pp', 'cp', 'ep'];
  // In a bar from the left; what has no name of its own here is other arithmetic.
  const PURPOSES = ['parameters', 'gradients', 'optimizer', 'activations', 'workspace', 'communication'];
  const PARTS = ['product', 'attention', 'other', 'optimizer', 'clip', 'communication'];
  const KINDS = [...new Set([...PURPOSES, ...PARTS])].filter((kind) => kind !== 'clip');
  const LETTER = 7, BAR = 34, LINE = 16;
  const values = Object.fromEntries(NAMES.map((d) => [d, [...new Set(
    rows.flatMap((row) => d in row ? [row[d]] : []))]]));
  let pinned = null, sorted = 'seconds';
  let chosen = {model: models[0].name, machine: machines[0].name, dp: 8, tp: 1, pp: 1, cp: 1, ep: 1,
    zero: 0, recompute: 'none'};

  const found = (choice) => rows.find((row) => NAMES.every((d) => !(d in row) || row[d] === choice[d]));
  const runs = (choice) => found(choice)?.seconds !== undefined;
  const machineOf = (choice) => machines.find((machine) => machine.name === choice.machine);
  const modelOf = (choice) => models.find((model) => model.name === choice.model);
  const gb = (bytes) => `${(bytes / 1e9).toFixed(2)} GB`;
  const short = (seconds) =>
    seconds < 0.1 ? `${Number((1e3 * seconds).toPrecision(3))} ms` : `${seconds.toFixed(3)} s`;
  const nameOf = (choice) => [...DEGREES.filter((d) => choice[d] > 1).map((d) => `${d} ${choice[d]}`),
    ...choice.zero ? [`ZeRO ${choice.zero}`] : [],
    ...choice.recompute === 'none' ? [] : ['recomputed']].join(', ') || 'one rank';
  const kindOf = (name) => name === 'clip' ? 'optimizer' : KINDS.includes(name) ? name : 'other';
  function parts(given) {
    const order = 'product' in given ? PARTS : PURPOSES;
    const place = (name) => order.indexOf(order.includes(name) ? name : 'other');
    return Object.entries(given).filter(([, n]) => n > 0).sort(([a], [b]) => place(a) - place(b));
  }

  // In the address: #gpt-1.3b/dgx-a100/dp8-tp1-pp1-cp1-ep1-zero0-none, "+" and that to compare with.
  const text = (choice) => [choice.model, choice.machine, [...DEGREES.map((d) => d + choice[d]),
    `zero${choice.zero}`, choice.recompute].join('-')].join('/');
  function read(from) {
    const [model, machine, layout = ''] = from.split('/'), choice = {model, machine};
    const words = layout.split('-');
    for (const d of [...DEGREES, 'zero'])
      choice[d] = Number(words.find((word) => word.startsWith(d))?.slice(d.length));
    choice.recompute = words.at(-1);
    return NAMES.every((d) => values[d].includes(choice[d])) ? choice : null;
  }
  function readAddress() {
    const [first, second] = decodeURIComponent(location.hash.slice(1)).split('+');
    chosen = read(first) ?? chosen;
    pinned = second ? read(second) : null;
    show();
  }

  function pattern(kind) {  // lines over the colour, so that parts differ without it, too
    const lines = {gradients: 'M0 8 L8 0', optimizer: 'M0 0 L8 8 M0 8 L8 0',
      activations: 'M2 2 h2 M6 6 h2', communication: 'M0 0 L8 8', attention: 'M0 4 h8',
      other: 'M4 0 v8', workspace: 'M0 4 h8 M4 0 v8'};
    return drawing('pattern', {id: `fill-${kind}`, width: 8, height: 8, patternUnits: 'userSpaceOnUse'},
      drawing('rect', {width: 8, height: 8, class: `part ${kind}`}),
      drawing('path', {d: lines[kind] ?? '', class: 'lines'}));
  }
  document.body.append(drawing('svg', {class: 'patterns', width: 0, height: 0, 'aria-hidden': 'true'},
    ...KINDS.map(pattern)));

  // A stacked bar below a line of words. What has no room in its part stands below, at the end of a
  // line. Returns what is drawn, and where it ends.
  function bar(top, width, most, words, given, said, limit) {
    const x = (n) => (width - 2) * n / most + 1, made = [], beside = [];
    made.push(drawing('text', {x: 0, y: top + 12, class: 'title'}, words));
    const y = top + 20;
    let begin = 0;
    for (const [name, n] of parts(given)) {
      const label = `${name} ${said(n)}`, wide = x(begin + n) - x(begin);
      made.push(drawing('rect', {x: x(begin), y, width: Math.max(0.5, wide), height: BAR, class: 'edge',
        fill: `url(#fill-${kindOf(name)})`, 'data-part': name}, drawing('title', {}, label)));
      if (wide > LETTER * label.length + 8)
        made.push(drawing('text', {x: x(begin) + 5, y: y + 22}, label));
      else beside.push([x(begin) + wide / 2, label]);
      begin += n;
    }
    // From the right: an outer line ends below the words of an inner one, and crosses none.
    const right = beside.filter(([at]) => at > width / 2);
    const left = beside.filter(([at]) => at <= width / 2);
    [...right, ...left.reverse()].forEach(([at, label], i) => {
      const base = y + BAR + LINE * (i + 1);
      const side = i < right.length ? -1 : 1;
      made.push(drawing('path', {d: `M${at} ${y + BAR} V${base - 4} h${4 * side}`, class: 'lead'}),
        drawing('text', {x: at + 7 * side, y: base, class: side < 0 ? 'before' : ''}, label));
    });
    if (limit) {
      made.push(drawing('path', {d: `M${x(limit)} ${top + 2} V${y + BAR + 4}`, class: 'limit'}),
        drawing('text', {x: x(limit) - 4, y: top + 12, class: 'before'},
          `capacity ${gb(limit).replace('.00', '')}`));
    }
    return [made, y + BAR + LINE * beside.length + 14];
  }

  function bars(id, shown, sizes, said, limit = () => 0) {
    const width = part(id).clientWidth, most = Math.max(...shown.flatMap(([choice, row]) =>
      [limit(choice), Object.values(sizes(row)).reduce((sum, n) => sum + n, 0)]));
    const drawn = [];
    let top = 0;
    for (const [choice, row, words] of shown) {
      const [made, end] = bar(top, width, most, words, sizes(row), said, limit(choice));
      drawn.push(...made);
      top = end;
    }
    part(id).replaceChildren(drawing('svg', {width, height: top, role: 'img', 'aria-label':
      `${id}: ${shown.map(([, row, words]) => `${words}: ` + parts(sizes(row)).map(([name, n]) =>
        `${name} ${said(n)}`).join(', ')).join('; ')}`}, ...drawn));
  }

  const swatch = (kind) => drawing('svg',
    {class: 'swatch', width: 14, height: 14, 'aria-hidden': 'true'},
    drawing('rect', {width: 14, height: 14, fill: `url(#fill-${kind})`}));

  function numbers(shown) {
    const lines = [['', shown.map(([, , words]) => words), '', 'names']];
    const add = (name, value, kind, of = '') =>
      lines.push([name, shown.map(([choice, row]) => value(row, choice)), kind, of + name]);
    const every = (of) =>
      [...new Set(shown.flatMap(([, row]) => parts(of(row)).map(([name]) => name)))];
    for (const name of every((row) => row.bytes))
      add(name, (row) => gb(row.bytes[name] ?? 0), kindOf(name), 'bytes ');
    add('at once on rank 0', (row) => gb(row.total));
    add('on the rank with most', (row) => gb(row.most));
    add('capacity', (_, choice) => gb(machineOf(choice).capacity));
    for (const name of every((row) => row.parts))
      add(name === 'communication' ? 'communication, exposed' : name,
        (row) => short(row.parts[name] ?? 0), kindOf(name), 'seconds ');
    add('a step', (row) => short(row.seconds));
    add('communication under way', (row) => short(row.under_way));
    add('sent by rank 0', (row) => gb(row.sent));
    add('tokens/s', (row) => Math.round(row.tokens_per_second).toLocaleString('en'));
    add('model FLOP utilisation', (row) => `${(100 * row.utilisation).toFixed(1)} %`);
    part('numbers').replaceChildren(...lines.map(([name, cells, kind, row], i) => element('tr', {'data-row': row},
      element('th', {scope: i ? 'row' : 'col'}, ...kind ? [swatch(kind)] : [], name),
      ...cells.map((cell) => element(i ? 'td' : 'th', {}, cell)))));
  }

  function list() {
    const here = rows.filter((row) => row.seconds && row.model === chosen.model &&
      row.machine === chosen.machine);
    const fit = here.filter((row) => row.fits).sort((a, b) => a[sorted] - b[sorted]);
    part('fitting').textContent = `${fit.length} of ${here.length} layouts of ${chosen.model} fit on ` +
      `${chosen.machine}. A heading sorts them, a layout is chosen by its name.`;
    const heading = (key, words) => {
      const button = element('button', {class: 'word', 'data-sort': key}, words);
      button.addEventListener('click', () => {
        sorted = key;
        list();
        part('list').querySelector(`[data-sort=${key}]`).focus();
      });
      return element('th', {scope: 'col', 'aria-sort': sorted === key ? 'ascending' : 'none'}, button);
    };
    part('list').replaceChildren(element('tr', {}, element('th', {scope: 'col'}, 'layout'),
      heading('seconds', 'a step'), heading('most', 'bytes')), ...fit.map((row) => {
      const choice = Object.fromEntries(NAMES.map((d) => [d, row[d]]));
      const is = text(choice) === text(chosen);
      const button = element('button', {class: 'word', 'data-layout': text(choice),
        ...is ? {'aria-current': 'true'} : {}}, nameOf(choice));
      button.addEventListener('click', () => {
        choose(choice);
        part('list').querySelector('[aria-current]').focus({preventScroll: true});
      });
      return element('tr', is ? {class: 'current'} : {}, element('td', {}, button),
        element('td', {}, short(row.seconds)), element('td', {}, gb(row.most)));
    }));
  }

  function selects() {
    const reasons = [];
    for (const d of NAMES) {
      part(d).replaceChildren(...values[d].map((value) => {
        const choice = {...chosen, [d]: value}, problem = found(choice)?.problem;
        if (problem) reasons.push(element('li', {}, `${DIMENSIONS[d]} ${value}: ${problem}`));
        return element('option', {value, ...problem ? {title: problem} : {}},
          problem && value !== chosen[d] ? `${value} (no)` : String(value));
      }));
      part(d).value = chosen[d];
    }
    part('reasons').replaceChildren(...reasons);
    part('why').hidden = !reasons.length;
  }

  function command(choice) {
    const flags = ['tp', 'pp', 'cp', 'ep'].filter((d) => choice[d] > 1)
      .map((d) => ` --${d} ${choice[d]}`);
    if (choice.zero) flags.push(` --zero ${choice.zero}`);
    if (choice.recompute !== 'none') flags.push(` --recompute ${choice.recompute}`);
    const machine = machineOf(choice);
    return `./aisc train --machine ${machine.name} --meta --ranks ${machine.ranks} ` +
      `${modelOf(choice).flags}${flags.join('')}`;
  }

  function show() {
    const row = found(chosen), machine = machineOf(chosen);
    const differs = pinned ? ['model', 'machine'].filter((d) => pinned[d] !== chosen[d]) : [];
    const shown = [...runs(chosen) ? [[chosen, row, pinned ? 'chosen' : nameOf(chosen)]] : [],
      ...pinned && runs(pinned) ? [[pinned, found(pinned), 'compared']] : []];
    selects();
    list();
    part('about').textContent = `${modelOf(chosen).says}; ${machine.name}: ${machine.says}.`;
    const ways = runs(chosen) ? [] : NAMES.flatMap((d) => values[d].filter((value) =>
      runs({...chosen, [d]: value})).map((value) => `${DIMENSIONS[d]} ${value}`));
    complain(runs(chosen) ? '' : `${nameOf(chosen)} is no layout: ${row.problem}.` +
      (ways.length ? ` One change makes one: ${ways.join(', or ')}.` : ''));
    part('verdict').replaceChildren(...runs(chosen) ? [element('b', {}, nameOf(chosen)),
      `: ${row.fits ? 'fits' : 'does not fit'}: ${gb(row.most)} at most on a rank, of ` +
      `${gb(machine.capacity)}. A step takes ${short(row.seconds)}.`] : [],
    ...pinned ? [` Compared with ${[...differs.map((d) => pinned[d]), nameOf(pinned)].join(', ')}: ` +
      `${gb(found(pinned).most)}, ${short(found(pinned).seconds)}.`] : []);
    part('pin').disabled = !runs(chosen);
    part('unpin').hidden = !pinned;
    if (shown.length) {
      bars('bytes', shown, (one) => one.bytes, gb, (choice) => machineOf(choice).capacity);
      bars('seconds', shown, (one) => one.parts, short);
      numbers(shown);
    } else {
      for (const id of ['bytes', 'seconds', 'numbers']) part(id).replaceChildren();
    }
    part('command').textContent = runs(chosen) ? command(chosen) : '';
  }

  function choose(choice) {
    chosen = choice;
    location.replace(`#${text(chosen)}${pinned ? `+${text(pinned)}` : ''}`);
    show();
  }

  for (const d of NAMES) {
    part('choice').append(element('label', {}, `${DIMENSIONS[d]} `, element('select', {id: d})));
    part(d).addEventListener('change', () =>
      choose({...chosen, [d]: values[d].find((value) => String(value) === part(d).value)}));
  }
  part('pin').addEventListener('click', () => { pinned = {...chosen}; choose(chosen); });
  part('unpin').addEventListener('click', () => { pinned = null; choose(chosen); });
  addEventListener('hashchange', readAddress);
  addEventListener('resize', show);
  readAddress();
});
