// The report of a run, from the JSON in #data (its schema is in report.h). Every part is drawn on
// its own and only from what is there; chart.js draws.
'use strict';

const data = JSON.parse(document.getElementById('data').textContent);
const rows = list(data.rows);
const summary = data.summary ?? {};
const steps = rows.map((row, i) => (isNumber(row.step) ? row.step : i + 1));
const unit = data.unit === 'byte' ? 'byte' : 'token';
const lossUnit = data.unit === '' ? 'nats' : `nats per ${unit}`;  // '': a sum of several means
const bytesPerUnit = unit === 'byte' ? 1 : number(data, 'bytes_per_token');
const evaluated = rows.filter((row) => isNumber(row.validation_loss));
const purposes = ['parameters', 'gradients', 'optimizer', 'activations', 'workspace',
  'communication'];
const plural = (n, noun) => `${grouped(n)} ${noun}${n === 1 ? '' : 's'}`;
const stepCursor = makeCursor();  // all charts by step, and the samples, move together

function drawHeader() {
  const status = String(data.status ?? 'done');
  const done = rows.length ? steps.at(-1) : 0;
  const whole = number(data, 'steps');
  const partly = isNumber(whole) && done < whole;
  const title = String(data.title ?? 'Training run');
  document.title = `${title} · ${status}`;
  const machine = data.machine ?? {};
  const about = [
    machine.name && String(machine.name).toUpperCase(),
    isNumber(machine.cores) && plural(machine.cores, 'core'),
    isNumber(machine.threads) && plural(machine.threads, 'thread'),
    machine.precision,
    isNumber(machine.peak_flops) && `peak of products ${format(machine.peak_flops, 'count')}FLOP/s`,
  ].filter(Boolean).join(' · ');
  const kind = {done: 'done', failed: 'failed'}[status] ?? 'other';
  page.append(html('header', {},
    html('p', {class: 'status'}, html('strong', {class: kind}, status),
      ` · step ${grouped(done)}${partly ? ` of ${grouped(whole)}` : ''}`),
    html('h1', {}, title),
    html('p', {class: 'machine'}, about),
    partly ? html('progress', {max: whole, value: done, 'aria-label': 'steps done'}) : null,
    html('dl', {class: 'tiles'}, ...tiles().map(([name, value, note]) => html('div', {},
      html('dt', {}, name), html('dd', {class: 'value'}, value),
      html('dd', {class: 'note'}, note))))));
}

// The big numbers: [name, value, note].
function tiles() {
  const out = [];
  const best = evaluated.reduce((a, b) => (b.validation_loss < a.validation_loss ? b : a),
    evaluated[0]);
  const lastSmooth = number(rows.findLast((row) => isNumber(row.smoothed_loss)), 'smoothed_loss');
  const loss = best ? best.validation_loss : lastSmooth;
  const last = evaluated.at(-1);
  let when = 'no validation yet';
  if (best) when = `${best === last ? '' : 'best, '}at step ${grouped(best.step)}`;
  if (best !== last) when += `; last ${format(last.validation_loss, 'loss')}`;
  if (isNumber(loss)) {
    out.push([best ? 'Validation loss' : 'Training loss', format(loss, 'loss'),
      `${lossUnit}, ${when}`]);
    const bits = loss / Math.LN2 / bytesPerUnit;
    if (isNumber(bits)) {
      out.push(['Bits per byte', format(bits, 'loss'),
        `${format(8 / bits, 'count')} times smaller than 8 bits`]);
    }
  }
  const median = summary.median ?? {};
  if (isNumber(median.tokens_per_second)) {
    out.push(['Throughput', format(median.tokens_per_second, 'count'),
      `${unit}s per second, median`]);
  }
  if (isNumber(median.utilisation)) {
    const peak = number(data.machine, 'peak_flops');
    out.push(['Utilisation', format(median.utilisation, 'share'),
      isNumber(peak) ? `of ${format(peak, 'count')}FLOP/s, median` : 'of the peak, median']);
    const repeated = number(data.machine, 'repeated');
    if (repeated > 1) {
      out.push(['Of the hardware', format(median.utilisation * repeated, 'share'),
        `with what is recomputed, ${format(repeated - 1, 'share')} more FLOPs`]);
    }
  } else if (summary.disturbed_count > 0) {
    out.push(['Utilisation', '–', 'peak disturbed: other programs ran while it was measured']);
  }
  const peaks = summary.peak_bytes ?? {};
  if (isNumber(peaks.total)) {
    const most = entries(peaks).filter(([name]) => name !== 'total')
      .reduce((a, b) => (b[1] > a[1] ? b : a), ['', 0]);
    out.push(['Peak memory', format(peaks.total, 'bytes'),
      most[1] > 0 ? `${words(most[0])} up to ${format(most[1], 'bytes')}` : 'in one step']);
  }
  if (isNumber(summary.seconds)) {
    out.push(['Time in steps', duration(summary.seconds),
      `${plural(summary.row_count, 'step')}, median ${format(median.seconds, 'seconds')}`]);
  }
  return out;
}

// ---- charts by step ----

function stepChart(title, note, kind, series, more = {}) {
  const shown = series.filter((s) => rows.some((row) => isNumber(row[s.key])));
  if (shown.length === 0) return;
  const card = section(title, note, more.wide ? 'wide' : '');
  drawChart(card, title, {
    xs: steps, xKind: 'step', xName: 'step', kind, cursor: stepCursor, rest: rows.length - 1,
    series: shown.map((s) => ({...s, values: rows.map((row) => number(row, s.key))})),
    events: list(data.events).map((event) => event.step).filter(isNumber),
    where: (i) => `step ${grouped(steps[i])}`,
    height: (width) => (more.wide ? Math.min(400, 170 + width * 0.25) : 200),
    ...more,
  });
}

function drawLoss() {
  const many = rows.length > 20;
  stepChart('Loss', lossUnit, 'loss', [
    {key: 'loss', name: 'training', color: many ? 'faint' : 'blue', style: many ? 'thin' : 'line'},
    ...(many ? [{key: 'smoothed_loss', name: 'smoothed', color: 'blue', style: 'line'}] : []),
    {key: 'validation_loss', name: 'validation', color: 'orange', style: 'points'},
  ], {wide: true, logs: true});
}

// Shares of what is right, by name.
function drawRight() {
  const names = Object.keys(evaluated.at(-1)?.right ?? {});
  if (names.length === 0) return;
  for (const row of rows)
    for (const name of names) row[`right: ${name}`] = row.right?.[name];
  stepChart('Right', 'share, of held-out samples', 'share', names.map((name, i) => (
    {key: `right: ${name}`, name, color: ['blue', 'orange'][i % 2], style: 'points'})),
  {zero: true});
}

function drawSteps() {
  drawRight();
  const style = rows.length > 400 ? 'thin' : 'line';
  const one = (key, name) => [{key, name, color: 'blue', style}];
  stepChart('Learning rate', '', 'plain',
    [{key: 'learning_rate', name: 'rate', color: 'blue', style: 'line'}], {zero: true});
  if (rows.some((row) => isNumber(row.auxiliary_loss))) {
    stepChart('Auxiliary loss', `what routers add, ${lossUnit}`, 'loss',
      one('auxiliary_loss', 'auxiliary'), {zero: true});
    stepChart('Dropped choices', 'share of those that found no room', 'share',
      one('dropped', 'dropped'), {zero: true});
    stepChart('Busiest expert', 'times an even share of a sample', 'plain',
      one('busiest_expert', 'busiest'), {zero: true});
  }
  if (rows.some((row) => isNumber(row.loss_scale)))
    stepChart('Loss scale', 'a step whose gradients overflow is skipped', 'plain',
      one('loss_scale', 'scale'), {zero: true, logs: true});
  stepChart('Gradient norm', 'before clipping', 'plain', one('gradient_norm', 'norm'),
    {zero: true, logs: true});
  stepChart('Throughput', `${unit}s per second`, 'count', one('tokens_per_second', 'throughput'),
    {zero: true});
  const disturbed = number(summary, 'disturbed_count');
  const gaps = disturbed > 0 ? `; peak disturbed in ${plural(disturbed, 'step')}` : '';
  stepChart('Utilisation', `of the measured peak${gaps}`, 'share', one('utilisation', 'utilisation'),
    {zero: true});
}

// ---- text, memory, time ----

function drawSamples() {
  const samples = list(data.samples);
  if (samples.length === 0) return;
  const card = section('Text as it improves', 'written by the model', 'wide');
  const where = html('p', {class: 'legend'});
  const slider = html('input', {type: 'range', min: 0, max: samples.length - 1,
    value: samples.length - 1, 'aria-label': 'which sample'});
  const text = html('pre', {class: 'sample', tabindex: 0});
  const show = () => {
    const {step, text: body} = samples[slider.value];
    const row = evaluated.find((r) => r.step === step);
    const place = `step ${isNumber(step) ? grouped(step) : '–'}`;
    where.replaceChildren(html('span', {}, html('b', {}, place)),
      html('span', {}, row ? `validation ${format(row.validation_loss, 'loss')}` : ''),
      html('span', {}, `sample ${Number(slider.value) + 1} of ${samples.length}`));
    slider.setAttribute('aria-valuetext', place);
    text.replaceChildren(html('span', {class: 'prompt'}, String(data.prompt ?? '').trimStart()),
      String(body ?? ''));
    return step;
  };
  slider.addEventListener('input', () => {
    const step = show();
    if (isNumber(step)) stepCursor.set(step);
  });
  slider.addEventListener('blur', () => stepCursor.set(null));
  card.append(where);
  if (samples.length > 1) card.append(slider);
  card.append(text);
  show();
}

function drawMemory() {
  const moments = list(data.memory);
  if (moments.length === 0) return;
  const bytes = (moment, purpose) => number(moment.live_bytes, purpose) || 0;
  const series = purposes.filter((p) => moments.some((moment) => bytes(moment, p) > 0))
    .map((p) => ({name: p, color: p, style: 'area', values: moments.map((m) => bytes(m, p))}));
  if (series.length === 0) return;
  const totals = moments.map((m) => purposes.reduce((sum, p) => sum + bytes(m, p), 0));
  const peak = totals.reduce((best, total, i) => (total > totals[best] ? i : best), 0);
  const xs = moments.map((moment, i) => (isNumber(moment.seconds) ? moment.seconds : i));
  const card = section('Memory over one step', 'what is alive, by purpose', 'wide');
  drawChart(card, 'Memory over one step', {
    xs, series, xKind: 'seconds', xName: 'time in the step', kind: 'bytes', stacked: true,
    zero: true, cursor: makeCursor(), rest: peak,
    where: (i) => `${i === peak ? 'peak, ' : ''}${format(totals[i], 'bytes')} at ${
      format(xs[i], 'seconds')}: ${moments[i].name ?? ''}${
      moments[i].part ? ` (${words(moments[i].part)})` : ''}`,
    height: (width) => Math.min(360, 190 + width * 0.16),
  });
}

function drawParts() {
  const parts = entries(data.parts).filter((part) => isNumber(part[1])).sort((a, b) => b[1] - a[1]);
  const total = parts.reduce((sum, part) => sum + part[1], 0);
  if (!(total > 0)) return;
  const card = section('Time by part', `of ${duration(total)} measured`, 'wide');
  const share = (seconds) => (seconds / total < 0.001 ? `<${thin}0.1${thin}%`
    : `${((100 * seconds) / total).toFixed(1)}${thin}%`);
  const picture = svg('svg', {role: 'img', 'aria-label': `Time by part: ${
    parts.map(([name, seconds]) => `${words(name)} ${share(seconds)}`).join(', ')}`});
  card.append(picture);
  whenSized(card, (width) => {
    const narrow = width < 560;  // there the words stand above the bar
    const [left, right, line] = narrow ? [0, width, 44] : [170, width - 150, 30];
    picture.setAttribute('viewBox', `0 0 ${width} ${line * parts.length + 6}`);
    picture.replaceChildren(...parts.flatMap(([name, seconds], i) => {
      const text = line * i + 20;
      const bar = {x: left, y: narrow ? text + 8 : text - 10, height: 12, rx: 3};
      return [
        svg('text', {class: 'strong', x: 0, y: text}, words(name)),
        svg('text', {x: width, y: text, 'text-anchor': 'end'},
          `${format(seconds, 'seconds')} · ${share(seconds)}`),
        svg('rect', {...bar, class: 'track', width: right - left}),
        svg('rect', {...bar, class: 'bar', width: Math.max(1, ((right - left) * seconds) / total)}),
      ];
    }));
  });
}

function drawTimeline() {
  const rows = list(data.timeline).filter((row) => list(row.events).length > 0);
  if (rows.length === 0) return;
  const end = Math.max(...rows.flatMap((row) => row.events.map((event) => Number(event[3]) || 0)));
  if (!(end > 0)) return;
  const card = section('One step on all ranks',
    `${format(end, 'seconds')}: forward, backward, weight gradient, update, waiting`, 'wide');
  const picture = svg('svg', {role: 'img', 'aria-label':
    `What each of ${rows.length} ranks did in one step of ${format(end, 'seconds')}`});
  card.append(picture);
  whenSized(card, (width) => {
    const [left, line] = [70, 26];
    const x = (seconds) => left + ((width - left) * seconds) / end;
    picture.setAttribute('viewBox', `0 0 ${width} ${line * rows.length + 6}`);
    picture.replaceChildren(...rows.flatMap((row, i) => [
      svg('text', {x: 0, y: line * i + 17}, String(row.name)),
      ...[...row.events].sort((a, b) => (b[3] - b[2]) - (a[3] - a[2])).flatMap((event) => {
        const [part, name, begin, until] = event;
        const box = {x: x(begin), width: Math.max(0.5, x(until) - x(begin)), y: line * i + 3};
        const action = svg('rect', {...box, height: line - 6,
          class: `action ${String(part).replace(' ', '-')}`});
        action.append(svg('title', {}, `${name}: ${format(until - begin, 'seconds')}`));
        if (box.width < 8 * String(name).length || part === 'communication') return [action];
        return [action, svg('text', {class: 'in-action', 'text-anchor': 'middle',
          x: box.x + box.width / 2, y: line * i + 17}, String(name))];
      }),
    ]));
  });
}

// ---- how to have it again ----

function drawConfiguration() {
  const groups = [...entries(data.config), ['machine', data.machine]]
    .map(([name, group]) => [name, entries(group)]).filter((group) => group[1].length > 0);
  if (groups.length === 0) return;
  const shown = (key, value) => {
    if (key === 'peak_flops' && isNumber(value)) return `${format(value, 'count')}FLOP/s`;
    if (typeof value === 'string' && /\S/.test(value)) return value;
    return JSON.stringify(value);
  };
  const card = section('Configuration', '', 'wide');
  card.append(html('div', {class: 'tables'}, ...groups.map(([name, group]) => html('div', {},
    html('h3', {}, words(name)),
    html('table', {}, html('tbody', {}, ...group.map(([key, value]) => html('tr', {},
      html('th', {scope: 'row'}, words(key)), html('td', {}, shown(key, value))))))))));
}

function drawEvents() {
  const events = list(data.events);
  if (events.length === 0) return;
  section('Events', '', 'wide').append(html('ol', {}, ...events.map((event) => html('li', {},
    html('b', {}, isNumber(event.step) ? `step ${grouped(event.step)}` : ''),
    String(event.text ?? '')))));
}

function drawCommand() {
  if (!data.command) return;
  const card = section('Command', '', 'wide');
  const code = html('pre', {}, String(data.command));
  const button = html('button', {type: 'button'}, 'Copy');
  const say = (text) => {
    button.textContent = text;
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  };
  const select = () => {  // where the clipboard is not allowed, the keys of the system do it
    getSelection().selectAllChildren(code);
    say('Selected');
  };
  button.addEventListener('click', () => {
    if (navigator.clipboard) {
      navigator.clipboard.writeText(code.textContent).then(() => say('Copied'), select);
    } else {
      select();
    }
  });
  card.append(html('div', {class: 'title'}, card.firstChild, button), code);
}

function drawFooter() {
  const kept = rows.length < summary.row_count
    ? ` Of ${grouped(summary.row_count)} rows, ${grouped(rows.length)} are drawn, the lowest and ` +
      'the highest among neighbours.' : '';
  page.append(html('footer', {}, 'Written by train_gpt. Charts answer to pointer, touch and ' +
    `arrow keys. The numbers of every step are in metrics.jsonl.${kept}`));
}

for (const draw of [drawHeader, drawLoss, drawSamples, drawSteps, drawMemory, drawTimeline, drawParts,
  drawEvents, drawConfiguration, drawCommand, drawFooter]) {
  try {
    draw();
  } catch (error) {
    report(`${draw.name}: ${error.message}`);
  }
}
