// Draws a timeline (05_pipeline/draw.cpp has the form, or it is a run's trace.json), below it the
// micro-batches in flight or the memory, and says what each rank does at the time of the cursor.
'use strict';

addEventListener('DOMContentLoaded', () => {
  const SHORT = 58, LANE = 30, CURVE = 44, GAP = 6, LETTER = 9, WIDEST = 3000;
  const PARTS = {forward: 'forward', backward: 'backward', 'weight gradient': 'weight',
    communication: 'communication', optimizer: 'update', update: 'update', product: 'product',
    attention: 'attention'};
  let schedules = window.SCHEDULES.map(read), schedule, times, x, left, drawnAt = 0;
  const nice = (number) => String(Number(number.toPrecision(4)));
  const bytes = (n) => {
    const [size, unit] = [[1e9, 'GB'], [1e6, 'MB']].find(([size]) => n >= size) ?? [1e3, 'kB'];
    return `${nice(n / size)} ${unit}`;
  };
  const during = (row, t) => row.events.filter(([, , begin, end]) => begin <= t && t < end)
    .sort((a, b) => a[3] - a[2] - b[3] + b[2]);  // the innermost first
  const kept = (curve, t) => curve.findLast(([begin]) => begin <= t)?.[1] ?? 0;
  const curvesOf = (one) => one.memory_over_time ?? one.in_flight_over_time ?? [];
  const amount = (n) => schedule.memory_over_time ? bytes(n) : String(n);

  // Chrome's trace format, where processes are ranks, in microseconds. What ran beside a rank's thread
  // is put into as few rows as it takes.
  function ofTrace({traceEvents: all, schedule: name}) {
    const ranks = [...new Set(all.map((e) => e.pid))].sort((a, b) => a - b);
    const spans = all.filter((e) => e.ph === 'X'), begin = Math.min(...spans.map((e) => e.ts));
    const seconds = (ts) => (ts - begin) / 1e6;
    const timeline = ranks.flatMap((pid, rank) => {
      const own = spans.filter((e) => e.pid === pid).sort((a, b) => a.ts - b.ts || b.dur - a.dur);
      const row = (events, beside) => ({rank, name: `rank ${pid}${beside}`, events: events.map((e) =>
        [beside ? 'communication' : e.cat, e.name, seconds(e.ts), seconds(e.ts + e.dur)])});
      const lanes = [];
      for (const e of own.filter((e) => e.tid !== 0 && e.dur > 0)) {
        const free = lanes.find((lane) => lane.at(-1).ts + lane.at(-1).dur <= e.ts);
        if (free) free.push(e); else lanes.push([e]);
      }
      return [row(own.filter((e) => e.tid === 0), ''), ...lanes.map((lane) => row(lane, ', messages'))];
    });
    const sum = (args) => Object.values(args).reduce((all, n) => all + n, 0);
    const counted = all.filter((e) => e.ph === 'C' && e.name === 'live bytes');
    const curves = ranks.map((pid) => counted.filter((e) => e.pid === pid)
      .map((e) => [Math.max(0, seconds(e.ts)), sum(e.args)]).sort(([a], [b]) => a - b));
    for (const curve of curves) if (curve.length) curve.unshift([0, curve[0][1]]);
    const known = curves.every((curve) => curve.length);
    return {schedule: name, timeline, ...(known ? {memory_over_time: curves} : {})};
  }
  function read(json) {
    if (json.traceEvents) return ofTrace(json);
    return [json].flat().every((row) => row.events) ? {timeline: [json].flat()} :
      json.timeline ? json : {timeline: json.rows};
  }

  function draw() {
    const {timeline} = schedule, curves = curvesOf(schedule);
    const end = times.at(-1), events = timeline.flatMap((row) => row.events);
    const needed = events.map(([, name, begin, till]) => LETTER * name.length * end / (till - begin));
    const middle = needed.sort((a, b) => a - b)[Math.floor(needed.length / 2)];  // half have names
    left = Math.max(SHORT, ...timeline.map((row) => 7 * row.name.length + 8));
    const width = Math.max(part('scroll').clientWidth, Math.min(WIDEST, left + 8 + middle + LETTER));
    x = (t) => left + (width - left - 8) * t / end;
    const most = curves.flat().reduce((most, [, n]) => Math.max(most, n), 1);
    const rounding = 1e-9 * end;  // of times: what follows at once does not lie inside
    const drawn = [], names = [];
    const name = (y, text) => names.push(drawing('text', {x: 0, y, class: 'name'}, text));
    timeline.forEach((row, r) => {
      const y = r * (LANE + GAP);
      name(y + 20, row.name);
      const outer = [];  // whose inside is not over yet
      const sorted = [...row.events].sort((a, b) => a[2] - b[2] || b[3] - a[3]);
      sorted.forEach((event, i) => {
        const [kind, name, begin, till] = event, wide = x(till) - x(begin);
        while (outer.length && outer.at(-1)[3] <= begin + rounding) outer.pop();
        const inside = outer.length > 0, has = sorted[i + 1]?.[2] < till - rounding;
        const above = inside ? LANE / 2 : 0, high = inside ? LANE / 2 : LANE;
        drawn.push(drawing('rect', {x: x(begin), y: y + above, width: Math.max(0.5, wide - 1), height: high,
          class: `block ${PARTS[kind] ?? 'other'}`}, drawing('title', {}, `${name} (${kind})`)));
        const label = [name, kind].find((text) => wide > LETTER * text.length);
        if (label)
          drawn.push(drawing('text', {x: x(begin) + wide / 2, y: y + (inside ? 27 : has ? 12 : 20),
            class: `in ${PARTS[kind] ?? 'other'}`}, label));
        outer.push(event);
      });
    });
    const top = timeline.length * (LANE + GAP) + 26;
    if (curves.length) name(top - 8, schedule.memory_over_time ? 'Memory:' : 'In flight:');
    curves.forEach((curve, r) => {
      const base = top + r * (CURVE + GAP) + CURVE, y = (n) => base - (CURVE - 16) * n / most;
      let path = `M${x(0)} ${base}`, last = 0;
      for (const [t, n] of curve) { path += ` L${x(t)} ${y(last)} L${x(t)} ${y(n)}`; last = n; }
      const peak = Math.max(...curve.map(([, n]) => n));
      name(base - 6, `rank ${r}`);
      drawn.push(drawing('path', {d: `${path} L${x(end)} ${y(last)} L${x(end)} ${base} z`, class: 'area'}),
        drawing('text', {x: x(curve.find(([, n]) => n === peak)[0]) + 3, y: y(peak) - 4, class: 'peak'},
          `at most ${amount(peak)}`));
    });
    const height = curves.length ? top + curves.length * (CURVE + GAP) : top - 20;
    drawn.push(drawing('line', {id: 'cursor', y1: 0, y2: height}));
    drawn.push(drawing('g', {id: 'names'}, drawing('rect', {width: left - 4, height}), ...names));
    part('scroll').replaceChildren(drawing('svg', {width, height, viewBox: `0 0 ${width} ${height}`},
      ...drawn));
  }

  // Names stay where they are while the rest is moved.
  const stay = () => part('names').setAttribute('transform', `translate(${part('scroll').scrollLeft})`);
  part('scroll').addEventListener('scroll', stay);

  function show(k) {
    const t = times[k], box = part('scroll');
    if (drawnAt !== box.clientWidth) draw();
    drawnAt = box.clientWidth;
    for (const end of ['x1', 'x2']) part('cursor').setAttribute(end, x(t));
    if (x(t) < box.scrollLeft + left || x(t) > box.scrollLeft + box.clientWidth - 40)
      box.scrollLeft = x(t) - box.clientWidth / 2;
    stay();
    part('count').replaceChildren(element('b', {}, `Second ${nice(t)} of ${nice(times.at(-1))}`), '.');
    part('words').replaceChildren(...schedule.timeline.map((row, r) => {
      const names = during(row, t).map(([kind, name]) => name === kind ? name : `${name} (${kind})`);
      const begun = row.events.some(([, , begin]) => begin <= t);
      const over = row.events.every(([, , , end]) => end <= t);
      const curve = curvesOf(schedule)[row.rank ?? r], n = curve ? kept(curve, t) : 0;
      const what = names.length ? `does ${names.join(' in ')}` : over ? 'is done' :
        begun ? 'waits' : 'has not begun';
      const first = schedule.timeline.findIndex((other) => other.rank === row.rank) === r;
      const tail = !curve || (row.rank !== undefined && !first) ? '' :
        schedule.memory_over_time ? `; ${bytes(n)} live` : `; ${n} in flight`;
      return element('p', {'data-in-flight': n}, `${row.name} ${what}${tail}.`);
    }));
  }

  const go = stepping({last: () => times.length - 1, show, opened(json, name) {
    const found = read(json);
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
    drawnAt = 0;
    times = [...new Set([0, ...events.flatMap(([, , begin, end]) => [begin, end])])].sort((a, b) => a - b);
    go(0);
  }
  part('what').addEventListener('change', () => choose(part('what').value));
  const named = decodeURIComponent(location.hash.slice(1));
  choose(schedules.some((one) => one.schedule === named) ? named : '1f1b');
});
