// Draws a plan's rounds (09_collectives/plans.cpp has the form): rows of ranks with what they hold,
// arrows for messages, and the same in words.
'use strict';

addEventListener('DOMContentLoaded', () => {
  const MOST_LABELS = 16, MOST_LETTERS = 8;
  const FRAMES = {recv: 'received', reduce: 'added', copy: 'copied'};
  let plans = window.PLANS.plans, plan = plans[0];
  const nameOf = (p) => `${p.collective}, ${p.algorithm.split('/')[0]}`;
  const list = (text) => text ? text.split(' ') : [];
  const place = ([buffer, begin, n]) =>
    n === 1 ? `${buffer}[${begin}]` : `${buffer}[${begin}..${begin + n - 1}]`;
  const said = ([buffer, begin, n], values) => n ? `${place([buffer, begin, n])} (${values})` : 'a signal';

  function changed(round) {  // {rank: {buffer: {element: kind}}}
    const found = {};
    const mark = (rank, [buffer, begin, n], kind) => {
      for (let i = begin; i < begin + n; ++i) ((found[rank] ??= {})[buffer] ??= {})[i] = kind;
    };
    for (const m of round.messages) mark(m.to, m.target, 'recv');
    for (const w of round.work) mark(w.rank, w.to, w.kind);
    return found;
  }

  function row(held, rank, marks) {
    const buffers = Object.entries(held).filter(([, values]) => values);
    return element('section', {class: 'rank', 'data-rank': rank, 'aria-label': `rank ${rank}`},
      ...buffers.map(([buffer, values]) => element('div', {class: 'buffer'},
        element('span', {class: 'name'}, buffer),
        ...list(values).map((value, i) => {
          const kind = FRAMES[marks?.[buffer]?.[i]] ?? '';
          return element('span', {class: `cell ${kind}`, 'data-buffer': buffer,
            title: `${buffer}[${i}] of rank ${rank} ${kind}`}, value);
        }))));
  }

  // A round in a sentence a rank.
  function words(round, rank) {
    const parts = [];
    for (const m of round.messages) {
      if (m.from === rank) parts.push(`sends ${said(m.source, m.values)} to rank ${m.to}`);
      if (m.to === rank) parts.push(m.target[2] ? `receives ${m.values} from rank ${m.from} into ` +
        place(m.target) : `receives a signal from rank ${m.from}`);
    }
    for (const w of round.work.filter((w) => w.rank === rank))
      parts.push(w.kind === 'copy' ? `copies ${place(w.from)} to ${place(w.to)}` :
        `adds ${place(w.from)} to ${place(w.to)}`);
    return `Rank ${rank} ${parts.join(', ') || 'does nothing'}.`;
  }

  // Arrows from the left edge, the senders', to the right one.
  function arrows(messages) {
    const svg = part('arrows'), width = svg.clientWidth;
    const rows = [...document.querySelectorAll('.rank')];
    svg.setAttribute('height', part('stage').offsetHeight);
    const heights = (rank, all, one) => {
      const {offsetTop: top, offsetHeight: height} = rows[rank];
      return top + height * (all.indexOf(one) + 1) / (all.length + 1);
    };
    const drawn = rows.map((_, rank) => {
      const middle = heights(rank, [0], 0);
      return drawing('text', {x: 2, y: middle + 4, class: 'number'}, rank);
    });
    for (const m of messages) {
      const y = heights(m.from, messages.filter((other) => other.from === m.from), m);
      const to = heights(m.to, messages.filter((other) => other.to === m.to), m);
      const [x, end] = [16, width - 12];
      drawn.push(drawing('path', {d: `M${x} ${y} L${end} ${to}`, 'marker-end': 'url(#head)',
        class: m.source[2] ? 'message' : 'message signal', 'data-message': `${m.from}-${m.to}`}));
      const values = list(m.values), short = m.values.length > MOST_LETTERS ?
        `${values[0]}…${values.length > 1 ? ` (${values.length})` : ''}` : m.values;
      if (messages.length <= MOST_LABELS && short)
        drawn.push(drawing('text', {x: x + 4, y: y + (to - y) * 0.06 - 3, class: 'label'}, short));
    }
    svg.replaceChildren(drawing('defs', {}, drawing('marker', {id: 'head', viewBox: '0 0 8 8', refX: 7,
      refY: 4, markerWidth: 9, markerHeight: 9, orient: 'auto', markerUnits: 'userSpaceOnUse'},
    drawing('path', {d: 'M0 0 L8 4 L0 8 z', class: 'head'}))), ...drawn);
  }

  function show(k) {
    const round = plan.rounds[k], marks = changed(round), {sent} = round;
    part('ranks').replaceChildren(...round.after.map((held, rank) => row(held, rank, marks[rank])));
    part('count').replaceChildren(element('b', {}, `Round ${k} of ${plan.rounds.length - 1}`),
      `. Sent so far: ${count(sent.messages, 'message')}, ${count(sent.elements, 'element')}.`);
    part('words').replaceChildren(...round.after.map((_, rank) => element('p', {},
      k === 0 && !round.work.some((w) => w.rank === rank) ? `Rank ${rank} has not begun.` :
        words(round, rank))));
    arrows(round.messages);
    complain(k === plan.rounds.length - 1 && plan.problem ? `It ends here: ${plan.problem}` : '');
  }

  const go = stepping({last: () => plan.rounds.length - 1, show, opened(json) {
    if (!Array.isArray(json.plans) || !json.plans.length) throw Error('"plans" is missing');
    if (!json.plans.every((p) => p.collective && p.rounds?.[0]?.after))
      throw Error('a plan has no rounds');
    plans = json.plans;
    choose();
  }});
  function choose() {
    options(part('what'), [...new Set(plans.map(nameOf))]);
    const fitting = plans.filter((p) => nameOf(p) === part('what').value);
    options(part('size'), [...new Set(fitting.map((p) => String(p.ranks)))]);
    plan = fitting.find((p) => String(p.ranks) === part('size').value);
    go(0);
  }
  part('what').addEventListener('change', choose);
  part('size').addEventListener('change', choose);
  const [what, size] = decodeURIComponent(location.hash.slice(1)).split('/');  // "#all_reduce, ring/3"
  options(part('what'), [...new Set(plans.map(nameOf))]);
  part('what').value = plans.some((p) => nameOf(p) === what) ? what : 'all_reduce, ring';
  options(part('size'), [...new Set(plans.map((p) => String(p.ranks)))]);
  part('size').value = plans.some((p) => String(p.ranks) === size) ? size : '4';
  choose();
});
