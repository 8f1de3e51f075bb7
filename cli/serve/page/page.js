'use strict';
// What is shown, and when it is asked for again. What was chosen stands in the page's address after
// '#', so that a view can be kept and passed on.
(() => {
  const kPoll_ms = 3000, kTyped_ms = 120, kFirstRuns = 6, kMostRuns = 16;
  const at = (id) => document.getElementById(id);
  const view = {axis: 'steps', from: undefined, to: undefined};
  const state = {runs: [], chosen: [], places: new Map(), details: new Map(), smooth: 0, marks: true,
                 tab: 'ranks', run: '', only: true, search: '', now_s: 0, drawnOf: '', asked: 0,
                 stale: false};

  const zoom = (from, to) => {
    view.from = from;
    view.to = to;
    at('reset').hidden = from === undefined;
    draw();
  };
  const kCharts = [
    {title: 'Loss', field: 'loss', kind: 'half', unit: 'nats per token'},
    {title: 'Validation loss', field: 'validation_loss', kind: 'half', unit: 'nats per token', plain: true, none: 'No validation was logged.'},
    {title: 'Gradient norm', field: 'grad_norm', log: true},
    {title: 'Throughput', field: 'tokens_per_s', unit: 'tokens/s, all ranks', show: (y) => Words.compact(y), zero: true, smooth: 0.9},
    {title: 'Peak memory', field: 'memory', unit: 'GiB, rank 0', scale: 2 ** 30, zero: true, plain: true, none: 'These runs logged no memory.'},
    {title: 'Step time', field: 'step_time', unit: 's', zero: true, smooth: 0.9},
    {title: 'Learning rate', field: 'lr', zero: true, plain: true},
    {title: 'Wait for data', field: 'data_wait', unit: 's a step, rank 0', zero: true, smooth: 0.9, none: 'These runs logged no phases.'},
  ];
  const charts = [];
  let phases;
  function makeCharts() {
    for (const options of kCharts) charts.push(new Charts.CurveChart(at('charts'), options, zoom));
    phases = new Charts.PhaseChart(at('charts'));
  }

  // ---- what was chosen ---------------------------------------------------------------------------
  const placeOf = (run) => state.places.has(run) ? state.places.get(run) : -1;
  function choose(runs) {
    state.chosen = runs.slice(0, kMostRuns);
    for (const run of [...state.places.keys()])
      if (!state.chosen.includes(run)) state.places.delete(run);
    for (const run of state.chosen) {
      if (state.places.has(run)) continue;
      let place = 0;
      while ([...state.places.values()].includes(place)) ++place;
      state.places.set(run, place);
    }
    if (!state.chosen.includes(state.run)) state.run = state.chosen[0] || '';
  }
  function keep() {
    const words = new URLSearchParams();
    for (const run of state.chosen) words.append('run', run);
    words.set('x', view.axis);
    if (state.smooth > 0) words.set('smooth', state.smooth);
    if (state.tab !== 'ranks') words.set('tab', state.tab);
    history.replaceState(null, '', `${location.pathname}${location.search}#${words}`);
  }
  function recall() {
    const words = new URLSearchParams(location.hash.slice(1));
    if (['steps', 'tokens', 'seconds'].includes(words.get('x'))) view.axis = words.get('x');
    if (['ranks', 'events', 'config'].includes(words.get('tab'))) state.tab = words.get('tab');
    const smooth = Number(words.get('smooth'));
    if (smooth > 0 && smooth <= 0.99) state.smooth = smooth;
    return words.getAll('run');
  }

  // ---- drawing -----------------------------------------------------------------------------------
  const width = (chart) => Math.max(200, chart.parts.plot.clientWidth);
  async function curvesOf(chart) {
    const points = Math.min(2000, width(chart));  // a smallest and a largest value each 2 pixels
    const weight = chart.options.plain ? 0 : Math.max(state.smooth, chart.options.smooth || 0);
    const ask = (smooth) => Server.curve(state.chosen, chart.field, view, smooth, points);
    const [plain, smooth] = await Promise.all([ask(0), weight > 0 ? ask(weight) : null]);
    const drawn = (answer, isPale) => answer.curves.map(
        (curve) => ({...curve, name: curve.run, place: placeOf(curve.run), isPale}));
    return smooth ? [...drawn(smooth, false), ...drawn(plain, true)] : drawn(plain, false);
  }
  function marks() {
    if (!state.marks) return [];
    return state.chosen.flatMap((run) => ((state.details.get(run) || {}).marks || []).map((mark) => ({
      kind: mark.kind, step: mark.step, words: mark.words, name: run, place: placeOf(run),
      x: {steps: mark.step, tokens: mark.tokens, seconds: mark.seconds}[view.axis]})));
  }

  async function draw() {
    keep();
    const asked = ++state.asked, began = performance.now();
    const root = document.documentElement.dataset;  // for who measures
    delete root.firstIn;
    delete root.drawnAt;
    at('content').hidden = state.chosen.length === 0;
    at('empty').hidden = state.chosen.length > 0;
    at('empty').textContent = state.runs.length > 0
        ? 'Choose a run to see its curves.'
        : 'No run is here yet: a run is a folder with run_args.json or metrics.jsonl.';
    if (state.chosen.length === 0) return;
    const isOld = () => asked !== state.asked;  // something else was asked for meanwhile
    let points = 0, of = 0, most = view.to || 0;
    const show = (chart, curves) => {
      if (isOld()) return;
      most = Math.max(most, ...curves.map((curve) => curve.x.at(-1) || 0));
      chart.show(curves, marks(), view, most);
      if (!root.firstIn) root.firstIn = Math.round(performance.now() - began);
      for (const curve of curves.filter((each) => !each.isPale)) {
        points += curve.x.length;
        of += curve.of;
      }
    };
    // Of a whole run the loss is there first, and says how far the axis goes.
    const first = view.from === undefined ? charts.slice(0, 1) : [];
    for (const chart of first) show(chart, await curvesOf(chart));
    if (!root.firstAt) root.firstAt = Math.round(performance.now());
    const unknown = state.chosen.filter((run) => state.stale || !state.details.has(run));
    state.stale = false;
    const details = Promise.all(unknown.map((run) => Server.run(run)));
    const shares = Server.phases(state.chosen, view);
    await Promise.all(charts.slice(first.length).map(async (chart) => show(chart, await curvesOf(chart))));
    const seconds = (await shares).runs.map((run) => ({name: run.run, seconds: run.seconds}));
    for (const detail of await details) state.details.set(detail.run, detail);
    if (isOld()) return;
    phases.show(seconds);
    if (unknown.length > 0) {
      for (const chart of charts) chart.mark(marks());
      showTables();
    }
    const took = Math.round(performance.now() - began);
    at('drawn').textContent = `${Words.compact(points)} of ${Words.compact(of)} points, ${took} ms`;
    root.drawnAt = Math.round(performance.now());
    root.drawnIn = took;
  }

  function showTables() {
    const runs = state.chosen.map((name) => state.runs.find((run) => run.run === name)).filter(Boolean);
    Tables.summary(at('summary'), runs, state.details, placeOf, state.now_s);
    at('run').replaceChildren(...state.chosen.map((run) => new Option(run, run, false, run === state.run)));
    for (const button of at('tabs').children)
      button.setAttribute('aria-selected', String(button.dataset.tab === state.tab));
    at('which').hidden = state.tab === 'config';
    at('differing').hidden = state.tab !== 'config' || state.chosen.length < 2;
    showDetail();
  }
  async function showDetail() {
    const detail = state.details.get(state.run);
    if (state.tab === 'config') {
      const config = await Server.config(state.chosen);
      if (state.tab === 'config')
        at('tab_note').textContent = Tables.config(at('detail'), config, placeOf, state.only);
    } else if (detail) {
      at('tab_note').textContent = Tables[state.tab](at('detail'), detail);
    }
  }
  function showList() {
    const words = state.search.toLowerCase();
    Tables.listRuns(at('list'), state.runs.filter((run) => run.run.toLowerCase().includes(words)), placeOf,
                    (run, chosen) => {
                      choose(chosen ? [...state.chosen, run] : state.chosen.filter((each) => each !== run));
                      showList();
                      showTables();
                      draw().catch(tell);
                    });
    at('chosen').textContent = `${state.chosen.length} of ${state.runs.length} shown`;
  }

  // ---- asking again ------------------------------------------------------------------------------
  function tell(error) {
    at('live').className = 'live off';
    at('live').textContent = `${new Date().toLocaleTimeString('en-GB')}: ${error.message}`;
  }
  async function look() {
    const listed = await Server.runs();
    state.runs = listed.runs;
    state.now_s = listed.now_unix_s;
    at('results').textContent = listed.results;
    document.title = `${listed.results} · Lockstep`;
    at('listing').textContent = [
      listed.cut ? 'There are more runs than are listed.' : '',
      listed.links_passed_over > 0 ? `${listed.links_passed_over} symbolic links were not followed.` : '',
    ].filter(Boolean).join(' ');
    const running = state.runs.filter((run) => run.state === 'running').length;
    at('live').className = 'live on';
    at('live').textContent = running > 0 ? `live, ${running} running` : 'up to date';
    const names = new Set(state.runs.map((run) => run.run));
    if (state.chosen.some((run) => !names.has(run))) choose(state.chosen.filter((run) => names.has(run)));
  }
  // Whether anything that is drawn has changed.
  function changed() {
    const now = state.chosen.map((name) => {
      const run = state.runs.find((each) => each.run === name) || {};
      return [name, run.state, run.step, run.generation, run.checkpoint_step, run.logged_unix_s > 0 ? Math.round(run.logged_unix_s) : 0].join();
    }).join(';');
    const before = state.drawnOf;
    state.drawnOf = now;
    return now !== before;
  }
  async function poll() {
    try {
      if (!document.hidden) {
        await look();
        if (!phases) makeCharts();
        showList();
        if (changed()) {
          state.stale = true;
          await draw();
        } else {
          const shown = state.runs.find((run) => run.run === state.run);
          if (shown && shown.state === 'running') state.details.set(state.run, await Server.run(state.run));
          showTables();
        }
      }
    } catch (error) {
      tell(error);
    }
    setTimeout(poll, kPoll_ms);
  }

  // ---- controls ----------------------------------------------------------------------------------
  const redraw = () => draw().catch(tell);
  for (const button of at('axis').children) {
    button.setAttribute('role', 'radio');
    button.addEventListener('click', () => {
      view.axis = button.dataset.axis;
      zoomed();
    });
  }
  function zoomed() {
    for (const button of at('axis').children)
      button.setAttribute('aria-checked', String(button.dataset.axis === view.axis));
    view.from = view.to = undefined;
    at('reset').hidden = true;
    redraw();
  }
  let typing = 0;
  at('smooth').addEventListener('input', () => {
    state.smooth = Number(at('smooth').value);
    at('smooth_value').textContent = state.smooth;
    clearTimeout(typing);
    typing = setTimeout(redraw, kTyped_ms);
  });
  at('marks').addEventListener('change', () => {
    state.marks = at('marks').checked;
    for (const chart of charts) chart.mark(marks());
  });
  at('reset').addEventListener('click', () => zoom());
  at('search').addEventListener('input', () => { state.search = at('search').value; showList(); });
  for (const button of at('tabs').children) {
    button.setAttribute('role', 'tab');
    button.addEventListener('click', () => { state.tab = button.dataset.tab; keep(); showTables(); });
  }
  at('run').addEventListener('change', () => { state.run = at('run').value; showDetail().catch(tell); });
  at('only').addEventListener('change', () => { state.only = at('only').checked; showDetail().catch(tell); });
  Charts.dark.addEventListener('change', () => {
    if (!phases) return;
    for (const chart of [...charts, phases]) chart.restyle();
    showList();
    showTables();
  });

  async function begin() {
    const wanted = recall();
    at('smooth').value = state.smooth;
    at('smooth_value').textContent = state.smooth;
    for (const button of at('axis').children)
      button.setAttribute('aria-checked', String(button.dataset.axis === view.axis));
    if (matchMedia('(max-width: 760px)').matches) at('runs').open = false;
    try {
      await look();
      const names = state.runs.map((run) => run.run);
      const newest = [...state.runs].sort((a, b) => b.logged_unix_s - a.logged_unix_s)
          .slice(0, kFirstRuns).map((run) => run.run).sort();
      const known = wanted.filter((run) => names.includes(run));
      choose(known.length > 0 ? known : newest);
      // The server reads these runs while the charts are made; draw() asks for what is drawn.
      if (state.chosen.length > 0) Server.curve(state.chosen, 'loss', view, 0).catch(tell);
      makeCharts();
      showList();
      changed();
      await draw();
    } catch (error) {
      tell(error);
    }
    setTimeout(poll, kPoll_ms);
  }
  begin();
})();
