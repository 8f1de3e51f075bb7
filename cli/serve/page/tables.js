'use strict';
// Lists and tables. Whatever a run says becomes text and never markup.
const Tables = (() => {
  const kStates = {running: 'good', done: '', failed: 'bad', agent_gone: 'bad', stopped: 'warn'};
  function add(parent, tag, words, name) {
    const element = parent.appendChild(document.createElement(tag));
    if (words !== undefined) element.textContent = words;
    if (name) element.className = name;
    return element;
  }
  function chip(parent, state) {
    return add(parent, 'span', state.replace('_', ' '), `chip ${kStates[state] || ''}`);
  }
  function swatch(parent, place) {
    const line = add(parent, 'i', undefined, Charts.isDashed(place) ? 'swatch dashed' : 'swatch');
    line.style.borderColor = Charts.colorOf(place);
  }
  // columns: [{head, text, cell(row, td)}]
  function fill(table, columns, rows, nameOfRow = () => '') {
    table.replaceChildren();
    const head = add(add(table, 'thead'), 'tr');
    for (const column of columns) add(head, 'th', column.head, column.text ? 'text' : '');
    const body = add(table, 'tbody');
    for (const row of rows) {
      const line = add(body, 'tr', undefined, nameOfRow(row));
      for (const column of columns) {
        const cell = add(line, 'td', undefined, column.text || '');
        const words = column.cell(row, cell);
        if (words !== undefined) cell.textContent = words;
      }
    }
  }
  const stepOf = (run) => run.step >= 0 ? Words.grouped(run.step) : Words.kUnknown;
  const planned = (run) => run.planned_steps >= run.step && run.step >= 0;

  // onChoose(name, chosen)
  function listRuns(list, runs, placeOf, onChoose) {
    list.replaceChildren();
    for (const run of runs) {
      const place = placeOf(run.run);
      const item = add(add(list, 'li'), 'label', undefined, place >= 0 ? 'run chosen' : 'run');
      const box = add(item, 'input');
      box.type = 'checkbox';
      box.checked = place >= 0;
      if (place >= 0) box.style.accentColor = Charts.colorOf(place);
      box.addEventListener('change', () => onChoose(run.run, box.checked));
      add(item, 'span', run.run, 'name');
      const facts = add(item, 'span', undefined, 'facts');
      if (run.state) chip(facts, run.state);
      if (run.trouble) facts.title = run.trouble;
      if (run.step >= 0) add(facts, 'span', `step ${stepOf(run)}`);
      if (Words.known(run.loss)) add(facts, 'span', `loss ${Words.fixed(run.loss, 3)}`);
      if (run.state !== 'running' || !planned(run)) continue;
      const done = add(add(item, 'span', undefined, 'bar'), 'i');
      done.style.width = `${100 * run.step / run.planned_steps}%`;
      if (place >= 0) done.style.background = Charts.colorOf(place);
    }
  }

  function summary(table, runs, details, placeOf, now_s) {
    const of = (run, key) => (details.get(run.run) || {})[key];
    const age = (run) => now_s - run.logged_unix_s;
    fill(table, [
      {head: 'Run', text: 'text', cell: (run, td) => {
        const name = add(td, 'span', undefined, 'called');
        swatch(name, placeOf(run.run));
        add(name, 'b', run.run);
        name.title = [run.run, run.model, run.strategy, run.parameters ? `${Words.compact(run.parameters)} parameters` : ''].filter(Boolean).join(' · ');
      }},
      {head: 'State', text: 'text', cell: (run, td) => { if (run.state) chip(td, run.state); else td.textContent = run.trouble; }},
      {head: 'Step', cell: (run) => planned(run) ? `${stepOf(run)} / ${Words.grouped(run.planned_steps)}` : stepOf(run)},
      {head: 'Loss', cell: (run) => Words.fixed(run.loss, 4)},
      {head: 'Validation', cell: (run) => Words.fixed(of(run, 'validation_loss'), 4)},
      {head: 'Tokens/s', cell: (run) => run.tokens_per_s >= 0 ? Words.grouped(run.tokens_per_s) : Words.kUnknown},
      {head: 'Step time', cell: (run) => Words.seconds(run.step_time_s)},
      {head: 'Memory', cell: (run) => Words.size(of(run, 'memory'))},
      {head: 'Ranks', cell: (run) => run.world_size > 0 ? Words.grouped(run.world_size) : Words.kUnknown},
      {head: 'Restarts', cell: (run, td) => { td.title = run.last_failure || ''; return Words.grouped(run.restarts); }},
      {head: 'Checkpoint', cell: (run) => run.checkpoint_step >= 0 ? `step ${Words.grouped(run.checkpoint_step)}` : Words.kUnknown},
      {head: 'Left', cell: (run) => run.eta_s >= 0 ? Words.duration(run.eta_s) : Words.kUnknown},
      {head: 'Last step', cell: (run) => run.logged_unix_s > 0 ? `${Words.duration(age(run))} ago` : Words.kUnknown},
    ], runs);
  }

  function ranks(table, details) {
    const status = details.status || {};
    const count = (value) => value >= 0 ? Words.grouped(value) : Words.kUnknown;
    fill(table, [
      {head: 'Rank', cell: (rank) => String(rank.rank)},
      {head: 'Node', text: 'text', cell: (rank) => rank.node || Words.kUnknown},
      {head: 'Process', cell: (rank) => String(rank.pid)},
      {head: 'Step', cell: (rank) => count(rank.step)},
      {head: 'Phase', text: 'text', cell: (rank) => rank.phase},
      {head: 'Save', text: 'text', cell: (rank) => rank.save_phase},
      {head: 'On disk', cell: (rank) => count(rank.committed_step)},
      {head: 'In memory', cell: (rank) => count(rank.snapshot_step)},
      {head: 'Sign of life', cell: (rank) => rank.age_s >= 0 ? `${Words.fixed(rank.age_s, 1)} s ago` : Words.kUnknown},
      {head: 'Tokens/s', cell: (rank) => count(rank.tokens_per_s)},
      {head: 'Suspect', text: 'text wide', cell: (rank) => rank.suspect || ''},
    ], status.workers || [], (rank) => rank.suspect ? 'wrong' : '');
    return [...(status.more ? [status.more] : []), ...(status.suspects || []), ...(status.health || []), ...(status.notes || [])].join(' · ') ||
        ((status.workers || []).length === 0 ? 'No agent says how the ranks of this run are.' : '');
  }

  function events(table, details) {
    fill(table, [
      {head: 'Time', text: 'text', cell: (event) => Words.time(event.t)},
      {head: 'Event', text: 'text', cell: (event) => String(event.event).replaceAll('_', ' ')},
      {head: 'Generation', cell: (event) => Words.grouped(event.generation)},
      {head: 'Ranks', cell: (event) => event.world_size > 0 ? Words.grouped(event.world_size) : Words.kUnknown},
      {head: 'Rank', cell: (event) => Words.known(event.rank) ? String(event.rank) : ''},
      {head: 'Step', cell: (event) => Words.known(event.step) ? Words.grouped(event.step) : ''},
      {head: 'What', text: 'text wide', cell: (event) => event.reason || ''},
    ], [...details.events].reverse(),
         (event) => /fail|lost/.test(event.event) ? 'wrong' : '');
    const counts = details.counts;
    const told = [[counts.redone, 'steps were done again'], [counts.skipped_updates, 'updates were skipped'],
                  [counts.damaged_lines, 'damaged lines of metrics.jsonl were passed over'],
                  [counts.damaged_events, 'damaged lines of events.jsonl were passed over'],
                  [counts.passed_over, 'steps are beyond what is kept in memory']];
    return told.filter(([count]) => count > 0)
        .map(([count, words]) => `${Words.grouped(count)} ${words}`).join(' · ') ||
        (details.events.length === 0 ? 'No events were logged: no agent watched this run.' : '');
  }

  // config: as the server gives it.
  function config(table, config, placeOf, only) {
    const rows = only && config.runs.length > 1 ? config.rows.filter((row) => row.differs) : config.rows;
    fill(table, [
      {head: 'Key', text: 'text key', cell: (row) => row.key},
      ...config.runs.map((run, i) => ({head: run, text: 'text wide', cell: (row) => row.values[i] || Words.kUnknown})),
    ], rows, (row) => row.differs && !only ? 'differs' : '');
    const heads = table.querySelectorAll('th');
    config.runs.forEach((run, i) => {
      heads[i + 1].textContent = '';
      swatch(heads[i + 1], placeOf(run));
      add(heads[i + 1], 'span', run);
    });
    if (rows.length > 0) return '';
    return config.rows.length > 0 ? 'The configs of these runs are the same.' : 'No run says what its config was.';
  }

  return {listRuns, summary, ranks, events, config};
})();
