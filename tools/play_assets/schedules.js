// Draws a timeline (05_pipeline/draw.cpp has the form), below it the micro-batches in flight, and
// says what each rank does at the time of the cursor.
'use strict';

addEventListener('DOMContentLoaded', () => {
  const LEFT = 58, LANE = 30, CURVE = 44, GAP = 6, LETTER = 9, WIDEST = 3000;
  const PARTS = {forward: 'forward', backward: 'backward', 'weight gradient': 'weight',
    communication: 'communication', optimizer: 'update', update: 'update'};
  let schedules = window.SCHEDULES, schedule, times;
  const nice = (seconds) => String(Number(seconds.toPrecision(4)));
  const during = (row, t) => row.events.filter(([, , begin, end]) => begin <= t && t < end);
  const kept = (rank, t) =>
    schedule.in_flight_over_time?.[rank]?.filter(([begin]) => begin <= t).at(-1)?.[1] ?? 0;

  function draw() {
    const {timeline, in_flight_over_time: curves = []} = schedule;
    const end = times.at(-1), events = timeline.flatMap((row) => row.events);
    const needed = events.map(([, name, begin, till]) => LETTER * name.length * end / (till - begin));
    const middle = needed.sort((a, b) => a - b)[Math.floor(needed.length / 2)];  // half have names
    const width = Math.max(part('scroll').clientWidth, Math.min(WIDEST, LEFT + 8 + middle + LETTER));
    const x = (t) => LEFT + (width - LEFT - 8) * t / end;
    const most = Math.max(1, ...curves.flat().map(([, n]) => n));
    const drawn = [], names = [];
    const name = (y, text) => names.push(drawing('text', {x: 0, y, class: 'name'}, text));
    timeline.forEach((row, r) => {
      const y = r * (LANE + GAP);
      name(y + 20, row.name);
      for (const [kind, name, begin, till] of [...row.events].sort((a, b) => b[3] - b[2] - a[3] + a[2])) {
        const wide = x(till) - x(begin);
        drawn.push(drawing('rect', {x: x(begin), y, width: Math.max(0.5, wide - 1), height: LANE,
          class: `block ${PARTS[kind] ?? 'other'}`}, drawing('title', {}, `${name} (${kind})`)));
        if (wide > LETTER * name.length)
          drawn.push(drawing('text', {x: x(begin) + wide / 2, y: y + 20, class: `in ${PARTS[kind] ?? ''}`},
            name));
      }
    });
    const top = timeline.length * (LANE + GAP) + 26;
    if (curves.length) name(top - 8, 'In flight:');
    curves.forEach((curve, r) => {
      const base = top + r * (CURVE + GAP) + CURVE, y = (n) => base - (CURVE - 16) * n / most;
      let path = `M${x(0)} ${base}`, last = 0;
      for (const [t, n] of curve) { path += ` L${x(t)} ${y(last)} L${x(t)} ${y(n)}`; last = n; }
      const peak = Math.max(...curve.map(([, n]) => n));
      name(base - 6, `rank ${r}`);
      drawn.push(drawing('path', {d: `${path} L${x(end)} ${y(last)} L${x(end)} ${base} z`, class: 'area'}),
        drawing('text', {x: x(curve.find(([, n]) => n === peak)[0]) + 3, y: y(peak) - 4, class: 'peak'},
          `at most ${peak}`));
    });
    const height = curves.length ? top + curves.length * (CURVE + GAP) : top - 20;
    drawn.push(drawing('line', {id: 'cursor', y1: 0, y2: height}));
    drawn.push(drawing('g', {id: 'names'}, drawing('rect', {width: LEFT - 4, height}), ...names));
    part('scroll').replaceChildren(drawing('svg', {width, height, viewBox: `0 0 ${width} ${height}`},
      ...drawn));
    return x;
  }

  // Names stay where they are while the rest is moved.
  const stay = () => part('names').setAttribute('transform', `translate(${part('scroll').scrollLeft})`);
  part('scroll').addEventListener('scroll', stay);

  function show(k) {
    const t = times[k], x = draw()(t), box = part('scroll');
    for (const end of ['x1', 'x2']) part('cursor').setAttribute(end, x);
    if (x < box.scrollLeft + LEFT || x > box.scrollLeft + box.clientWidth - 40)
      box.scrollLeft = x - box.clientWidth / 2;
    stay();
    part('count').replaceChildren(element('b', {}, `Second ${nice(t)} of ${nice(times.at(-1))}`), '.');
    part('words').replaceChildren(...schedule.timeline.map((row, r) => {
      const names = during(row, t).map(([kind, name]) => name === kind ? name : `${name} (${kind})`);
      const begun = row.events.some(([, , begin]) => begin <= t);
      const over = row.events.every(([, , , end]) => end <= t);
      const rank = Number(/^rank (\d+)$/.exec(row.name)?.[1] ?? -1), n = kept(rank, t);
      const what = names.length ? `does ${names.join(' in ')}` : over ? 'is done' :
        begun ? 'waits' : 'has not begun';
      const tail = schedule.in_flight_over_time?.[rank] ? `; ${n} in flight` : '';
      return element('p', {'data-in-flight': n}, `${row.name} ${what}${tail}.`);
    }));
  }

  const go = stepping({last: () => times.length - 1, show, opened(json, name) {
    const found = [json].flat().every((row) => row.events) ? {timeline: [json].flat()} :
      json.timeline ? json : {timeline: json.rows};
    if (!found.timeline?.length || !found.timeline.every((row) => row.name && Array.isArray(row.events)))
      throw Error('"timeline" is missing');
    if (!found.timeline.some((row) => row.events.length)) throw Error('nothing happens in it');
    const mine = {...found, schedule: `${name} (a file)`};
    schedules = [...schedules.filter((other) => other.schedule !== mine.schedule), mine];
    choose(mine.schedule);
  }});
  function choose(name) {
    options(part('what'), schedules.map((one) => one.schedule));
    part('what').value = name;
    schedule = schedules.find((one) => one.schedule === name);
    const events = schedule.timeline.flatMap((row) => row.events);
    times = [...new Set([0, ...events.flatMap(([, , begin, end]) => [begin, end])])].sort((a, b) => a - b);
    go(0);
  }
  part('what').addEventListener('change', () => choose(part('what').value));
  const named = decodeURIComponent(location.hash.slice(1));
  choose(schedules.some((one) => one.schedule === named) ? named : '1f1b');
});
