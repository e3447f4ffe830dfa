// One example, step by step: the tokens, an arrow for every look of a head, and what can be read after each step.
for (const root of document.querySelectorAll(".steps")) {
  const data = JSON.parse(root.querySelector("script").textContent);
  const part = (name) => root.querySelector(name);
  const [pick, without, picture, say] = [part(".pick"), part(".without"), part(".picture"), part(".say")];
  const now = { story: 0, instance: 0, step: Infinity }; // Infinity: the last step at which a head looks
  const WAYS = { "": "", row: " (by a fixed row)", other: " (another way)" }; // what is said of an instance, from the plainest on
  const first = (ways, kinds) => Math.max(0, ways.findIndex((way) => way === kinds.find((one) => ways.includes(one))));
  const strangest = (story) => first(story.ways, ["other", "row", ""]);
  const make = (parent, name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  };
  const size = (word) => (word ? Math.max(27, 8.4 * word.length + 12) : 0);
  const bare = (text) => text.replace(/^[ ·]+/, "") || text;
  const shown = (number) => (data.unit === "probability" ? `${Math.round(100 * number)}%` : number);
  const CLEAR = 0.5; // a read-out with a smaller squared error is drawn as right
  const put = (where, text, all) => { // in a place as high as the longest of all texts, so that nothing jumps
    where.style.minHeight = "";
    where.textContent = all.reduce((a, b) => (a.length > b.length ? a : b), "");
    where.style.minHeight = `${where.offsetHeight}px`;
    where.textContent = text;
  };
  const nearest = data.unit === "squared error", named = (k) => (data.names.length > 1 ? `${data.names[k]} ` : "");
  const answered = (answers) => answers.map(([text, number], k) => `${named(k)}${bare(text)} (${k ? "" : `${data.unit} `}${shown(number)})`).join(", ");
  const told = (one) => one.said + (one.reads.length ? ` Now can be read${nearest ? ", as the nearest symbol" : ""}: ${answered(one.reads)}.` : "");

  function draw() {
    const story = data.stories[now.story], steps = story.steps[now.instance], roles = story.roles[now.instance];
    const drawn = steps.findLastIndex((one) => one.arrows.length);
    now.step = now.step === Infinity ? (drawn < 0 ? steps.length - 1 : drawn) : Math.min(Math.max(now.step, 0), steps.length - 1);
    const step = steps[now.step], gone = without.value;
    const taken = (head) => (head ? `Without ${head} the circuit answers ${answered(story.without[head][now.instance])}; with it, ${answered(story.without[""][now.instance])}. The picture shows the unablated model.` : "");
    put(say, told(step), steps.map(told));
    put(part(".gone"), taken(gone), Object.keys(story.without).map(taken));
    part(".count").textContent = `step ${now.step + 1} of ${steps.length} (also with ← and →, Home and End)`;
    part(".back").setAttribute("aria-disabled", now.step === 0);
    part(".next").setAttribute("aria-disabled", now.step === steps.length - 1);
    const asked = story.roles.map((places, i) => Object.keys(places).find((k) => story.steps[i][0].said.includes(`(${places[k]})`)));
    part(".instances").replaceChildren(...(story.steps.length > 1 ? story.steps : []).map((_, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `${new Set(asked).size < asked.length ? `${i + 1}` : story.words[asked[i]]} → ?${WAYS[story.ways[i]]}`;
      button.setAttribute("aria-pressed", i === now.instance);
      button.onclick = () => { Object.assign(now, { instance: i, step: Infinity }); draw(); part(".instances").children[i].focus(); };
      return button;
    }));
    // The tokens at the bottom, a lane for every step above them, and at the right what can be read.
    const x = [], top = 30, lane = 46, low = top + lane * (steps.length - 1) + 34;
    let left = 8;
    for (const word of story.words) { const wide = size(word); x.push(left + wide / 2); left += wide && wide + 2; }
    const longest = Math.max(0, ...steps.flatMap((one) => one.reads.map(([text]) => text.length)));
    const sure = data.unit === "probability";
    const box = Math.max(30, 7.5 * longest + (sure ? 44 : 22)), wide = 14 + box * Math.max(...steps.map((one) => one.reads.length));
    const height = low + 110, drawing = (width, own) => make(document.createElement("div"), "svg", { viewBox: `0 0 ${width} ${height}`, width, height, ...own });
    const lanes = drawing(64, { class: "lanes", "aria-hidden": true }), svg = drawing(left + 8, { role: "img", "aria-label": say.textContent });
    const beside = drawing(wide, { class: "beside", "aria-hidden": true }); // it stays in sight, where there is room for it
    beside.style.position = wide < 0.45 * picture.clientWidth ? "" : "static";
    story.words.forEach((word, i) => {
      const role = roles[i], wide = size(word);
      if (!wide) return; // padding
      make(svg, "rect", { x: x[i] - wide / 2, y: low, width: wide, height: 30, rx: 5, fill: role ? "currentColor" : "transparent", "fill-opacity": 0.14, stroke: "currentColor", "stroke-width": role ? 2.5 : 0.6 });
      make(svg, "text", { x: x[i], y: low + 20, "text-anchor": "middle", "font-size": 15, "font-weight": role ? 700 : 400, opacity: role ? 1 : 0.75 }, word);
      if (role) make(svg, "text", { transform: `translate(${x[i] - 4} ${low + 44}) rotate(35)` }, role);
    });
    steps.forEach((one, k) => {
      const y = low - 34 - lane * k, on = k === now.step, seen = k <= now.step;
      make(lanes, "text", { x: 2, y: y + 4, "font-weight": on ? 700 : 400 }, one.layer === null ? (k ? "the end" : "tokens") : `layer ${one.layer}`);
      make(svg, "line", { x1: 0, x2: left, y1: y, y2: y, stroke: "#767676", "stroke-dasharray": "1 5" });
      if (seen) one.reads.forEach(([text, number, right], r) => {
        const at = 8 + r * box, good = right && (!nearest || number < CLEAR);
        make(beside, "rect", { x: at, y: y - 13, width: box - 6, height: 26, rx: 5, fill: "transparent", stroke: "currentColor", "stroke-width": good ? 2.5 : 0.6, "stroke-dasharray": good ? "" : "3 3" });
        make(beside, "text", { x: at + box / 2 - 3, y: y + 5, "text-anchor": "middle", "font-weight": good ? 700 : 400 }, sure ? `${bare(text)} ${shown(number)}` : text);
      });
      if (seen) one.arrows.forEach((a, n) => {
        const own = steps.findIndex((other) => a.head.startsWith(`L${other.layer}H`)); // what was written for it is in an earlier lane
        const before = one.arrows.slice(0, n).filter((b) => b.source === a.source); // arrows that end at the same place
        const y = low - 34 - lane * (own < 0 ? k : own) + 6 * before.length;
        const [x0, x1, colour] = [x[a.target], x[a.source], data.colours[a.head]], dashes = { fixed: "2 4", row: "2 4", seen: "9 3 2 3", other: "7 4" };
        const group = make(svg, "g", {}), side = x0 < x1 ? -1 : 1;
        make(group, "title", {}, `${a.head}: ${a.attention}`);
        make(group, "line", { x1, x2: x1, y1: low, y2: y, stroke: colour, "stroke-width": 1 });
        make(group, "path", { d: `M${x0} ${low} C${x0} ${y},${x0 + (x1 - x0) * 0.25} ${y},${x1 + side * 10} ${y}`, fill: "none", stroke: colour, "stroke-width": (on ? 1.5 : 1) * (1.2 + 2 * a.attention), "stroke-dasharray": dashes[a.kind] ?? "" });
        make(group, "path", { d: `M${x1 + side * 11} ${y - 6} L${x1} ${y} L${x1 + side * 11} ${y + 6}z`, fill: colour });
        if (on) make(group, "text", { x: x1 + side * 14, y: y - 9 - 19 * before.length, "text-anchor": x0 < x1 ? "end" : "start" }, `${a.head} ${a.attention.toFixed(2)}`);
      });
    });
    if (steps[0].reads.length) {
      make(beside, "text", { x: 8, y: 10 }, "can be read");
      if (data.names.length > 1) data.names.forEach((name, r) => make(beside, "text", { x: 8 + r * box + box / 2 - 3, y: 23, "text-anchor": "middle" }, name));
    }
    picture.replaceChildren(lanes, svg, beside);
    const ends = step.arrows.flatMap((a) => [x[a.target], x[a.source]]), seen = picture.clientWidth - 64 - (beside.style.position ? 0 : wide); // on a narrow screen:
    const [least, high] = [Math.min(...ends), Math.max(...ends)], fits = high - least < seen - 60; // all arrows, or where they end
    picture.scrollLeft = ends.length ? (fits ? (least + high) / 2 - seen / 2 : x[step.arrows.at(-1).source] - 0.7 * seen) : now.step ? picture.scrollWidth : 0;
  }

  data.stories.forEach((story, i) => pick.add(new Option(`${i + 1}${WAYS[story.ways[strangest(story)]]}`, i)));
  const goes = (story, right) => story.ways.findIndex((way, i) => way === "" && (!right || story.steps[i].at(-1).reads[0]?.[2])); // as the circuit says
  for (const right of [false, true]) {
    const plain = data.stories.findIndex((story) => goes(story, right) >= 0);
    if (plain >= 0) Object.assign(now, { story: plain, instance: goes(data.stories[plain], right) });
  }
  pick.value = now.story;
  Object.keys(data.stories[0].without).sort(new Intl.Collator("en", { numeric: true }).compare).forEach((head) => without.add(new Option(head || "nothing", head)));
  part(".aside").hidden = !without.length;
  pick.onchange = () => { Object.assign(now, { story: +pick.value, instance: strangest(data.stories[pick.value]), step: Infinity }); draw(); };
  without.onchange = draw;
  part(".back").onclick = () => { now.step -= 1; draw(); };
  part(".next").onclick = () => { now.step += 1; draw(); };
  root.onkeydown = (event) => {
    const to = { ArrowRight: now.step + 1, ArrowLeft: now.step - 1, Home: 0, End: 1e6 }[event.key];
    const other = event.altKey || event.ctrlKey || event.metaKey || event.shiftKey; // the browser's own
    if (to === undefined || other || event.target.tagName === "SELECT" || event.target === picture) return; // the picture scrolls
    event.preventDefault();
    now.step = to;
    draw();
  };
  const { asked, row, other } = data.counted, kinds = new Set(data.stories.flatMap((one) => one.steps.flat()).flatMap((one) => one.arrows.map((a) => a.kind)));
  const legend = { fixed: " Dotted: a fixed pattern of the circuit.", row: " Dotted: a fixed pattern or row of the circuit.", seen: " Dash-dotted: a head that the circuit leaves as it is.", other: " Dashed: the circuit says otherwise." };
  if (kinds.has("row")) kinds.delete("fixed");
  const reads = without.length ? ` What can be read is the model's own read-out after that layer (logit lens)${nearest ? ": the symbol nearest to it" : ""}; bold is right${nearest ? `, with a squared error below ${CLEAR}` : ""}.` : "";
  const ways = ` Of ${asked} answers looked at, ${other} go another way (the answer’s position looks where the circuit says otherwise)${row ? ` and ${row} by a fixed row, where no path leads` : ""}.`;
  part(".note").textContent = `Arrows show where a head takes from, and where it writes; the number is its attention in the unablated model. Solid: a path of the circuit.${Object.keys(legend).map((one) => (kinds.has(one) ? legend[one] : "")).join("")}${ways}${reads}`;
  draw();
  let seenWidth = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== seenWidth) { seenWidth = innerWidth; draw(); } });
}
