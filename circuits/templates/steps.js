// One example, step by step: the tokens, an arrow for every look of a head, and what can be read after each step.
for (const root of document.querySelectorAll(".steps")) {
  const data = JSON.parse(root.querySelector("script").textContent);
  const part = (name) => root.querySelector(name);
  const [pick, without, picture] = [part("select"), part(".without"), part(".picture")];
  const now = { story: 0, instance: 0, step: Infinity }; // Infinity: all but the last step
  const other = (steps) => steps.some((one) => one.arrows.some((a) => a.kind === "row" || a.kind === "other"));
  const make = (parent, name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  };
  const size = (word) => (word ? Math.max(27, 7.6 * word.length + 12) : 0);
  const bare = (text) => text.replace(/^[ ·]+/, "") || text;
  const shown = (number) => (data.unit === "probability" ? `${Math.round(100 * number)}%` : number);
  const answered = (answers) => answers.map(([text, number]) => `${bare(text)} (${shown(number)})`).join(", ");

  function draw() {
    const story = data.stories[now.story], steps = story.steps[now.instance], roles = story.roles[now.instance];
    now.step = now.step === Infinity ? Math.max(0, steps.length - 2) : Math.min(Math.max(now.step, 0), steps.length - 1);
    const step = steps[now.step], gone = without.value;
    const read = step.reads.length ? ` Now can be read: ${answered(step.reads)}.` : "";
    part(".say").textContent = gone
      ? `Take away ${gone}: the circuit then answers ${answered(story.without[gone][now.instance])}; with it, ${answered(story.without[""][now.instance])}.`
      : step.said + read;
    part(".count").textContent = `step ${now.step + 1} of ${steps.length}`;
    part(".back").disabled = now.step === 0;
    part(".next").disabled = now.step === steps.length - 1;
    part(".instances").replaceChildren(...(story.steps.length > 1 ? story.steps : []).map((one, i) => {
      const button = document.createElement("button"), at = Object.keys(story.roles[i]).find((k) => one[0].said.includes(`(${story.roles[i][k]})`));
      button.type = "button";
      button.textContent = `${story.words[at]} → ?${other(one) ? " (another way)" : ""}`;
      button.setAttribute("aria-pressed", i === now.instance);
      button.onclick = () => { Object.assign(now, { instance: i, step: Infinity }); draw(); part(".instances").children[i].focus(); };
      return button;
    }));
    // The tokens at the bottom, a lane for every step above them, and at the right what can be read.
    const x = [], top = 24, lane = 46, low = top + lane * (steps.length - 1) + 34;
    let left = 70;
    for (const word of story.words) { const wide = size(word); x.push(left + wide / 2); left += wide && wide + 2; }
    const longest = Math.max(0, ...steps.flatMap((one) => one.reads.map(([text]) => text.length)));
    const sure = data.unit === "probability";
    const box = Math.max(30, 8 * longest + (sure ? 52 : 22)), width = left + 24 + box * Math.max(...steps.map((one) => one.reads.length));
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const height = low + 110;
    for (const [key, value] of Object.entries({ viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": part(".say").textContent })) svg.setAttribute(key, value);
    story.words.forEach((word, i) => {
      const role = roles[i], wide = size(word);
      if (!wide) return; // padding
      make(svg, "rect", { x: x[i] - wide / 2, y: low, width: wide, height: 30, rx: 5, fill: "transparent", stroke: "currentColor", "stroke-width": role ? 2.5 : 0.6 });
      make(svg, "text", { x: x[i], y: low + 20, "text-anchor": "middle", "font-size": 15, "font-weight": role ? 700 : 400, opacity: role ? 1 : 0.75 }, word);
      if (role) make(svg, "text", { transform: `translate(${x[i] - 4} ${low + 44}) rotate(35)` }, role);
    });
    steps.forEach((one, k) => {
      const y = low - 34 - lane * k, on = k === now.step, seen = k <= now.step;
      make(svg, "text", { x: 4, y: y + 4, "font-weight": on ? 700 : 400 }, one.layer === null ? (k ? "the end" : "tokens") : `layer ${one.layer}`);
      make(svg, "line", { x1: 62, x2: left, y1: y, y2: y, stroke: "#767676", "stroke-dasharray": "1 5" });
      if (seen) one.reads.forEach(([text, number, right], r) => {
        const at = left + 18 + r * box, good = right && (data.unit !== "squared error" || number < 0.5);
        make(svg, "rect", { x: at, y: y - 13, width: box - 6, height: 26, rx: 5, fill: "transparent", stroke: "currentColor", "stroke-width": good ? 2.5 : 0.6, "stroke-dasharray": good ? "" : "3 3" });
        make(svg, "text", { x: at + box / 2 - 3, y: y + 5, "text-anchor": "middle", "font-weight": good ? 700 : 400 }, sure ? `${bare(text)} ${shown(number)}` : text);
      });
      if (seen) one.arrows.forEach((a) => {
        const own = steps.findIndex((other) => a.head.startsWith(`L${other.layer}H`)); // what was written for it is in an earlier lane
        const y = low - 34 - lane * (own < 0 ? k : own);
        const [x0, x1, colour] = [x[a.target], x[a.source], data.colours[a.head]], odd = a.kind === "row" || a.kind === "other";
        const group = make(svg, "g", { opacity: on ? 1 : 0.45 }), side = x0 < x1 ? -1 : 1;
        make(group, "title", {}, `${a.head}: ${a.attention}`);
        make(group, "line", { x1, x2: x1, y1: low, y2: y, stroke: colour, "stroke-width": 1 });
        make(group, "path", { d: `M${x0} ${low} C${x0} ${y},${x0 + (x1 - x0) * 0.25} ${y},${x1 + side * 10} ${y}`, fill: "none", stroke: colour, "stroke-width": 1.2 + 3 * a.attention, "stroke-dasharray": odd ? "7 4" : a.kind === "path" ? "" : "2 3" });
        make(group, "path", { d: `M${x1 + side * 11} ${y - 6} L${x1} ${y} L${x1 + side * 11} ${y + 6}z`, fill: colour });
        if (on) make(group, "text", { x: x1 + side * 14, y: y - 9, "text-anchor": x0 < x1 ? "end" : "start" }, `${a.head} ${a.attention.toFixed(2)}`);
      });
    });
    make(svg, "text", { x: left + 18, y: 10 }, steps[0].reads.length ? "can be read" : "");
    const from = picture.firstChild ? picture.scrollLeft : Infinity; // on a narrow screen, the answer comes first
    picture.replaceChildren(svg);
    picture.scrollLeft = from === Infinity ? picture.scrollWidth : from;
  }

  data.stories.forEach((story, i) => pick.add(new Option(`${i + 1}${story.steps.some(other) ? " (another way)" : ""}`, i)));
  Object.keys(data.stories[0].without).forEach((head) => without.add(new Option(head || "nothing", head)));
  pick.onchange = () => { Object.assign(now, { story: +pick.value, instance: 0, step: Infinity }); draw(); };
  without.onchange = draw;
  part(".back").onclick = () => { now.step -= 1; draw(); };
  part(".next").onclick = () => { now.step += 1; draw(); };
  root.onkeydown = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by && event.target.tagName !== "SELECT") { now.step += by; draw(); }
  };
  const [n, all] = data.other;
  part(".note").textContent = `A number on an arrow is attention, in the unablated model. Solid arrows are paths of the circuit; dashed arrows go where no path leads (in ${n} of ${all} instances the answer's position looks there); dotted ones are looks of heads that are named intact, or less than half of the attention. What can be read is the model's own read-out after that layer (logit lens); bold is right.`;
  draw();
}
