// The page is whole without this: it adds values under the pointer and filters.
document.documentElement.classList.add("scripted");

for (const svg of document.querySelectorAll("svg[data-hover]")) {
  const lines = JSON.parse(svg.dataset.hover);
  const cursor = svg.querySelector(".cursor");
  const tip = svg.parentElement.appendChild(document.createElement("div"));
  tip.className = "tip";
  tip.hidden = true;

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * scale;
    const near = lines.map((line) => line.points.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a)));
    const nearest = near.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
    cursor.setAttribute("x1", nearest[0]);
    cursor.setAttribute("x2", nearest[0]);
    cursor.style.visibility = "visible";
    const value = ([, step, text], i) => `${lines[i].name} ${text}${step === nearest[1] ? "" : ` (step ${step})`}`;
    tip.replaceChildren(...[`step ${nearest[1]}`, ...near.map(value)].map(row));
    tip.hidden = false;
    const origin = tip.offsetParent.getBoundingClientRect();
    const left = box.left - origin.left + nearest[0] / scale;
    tip.style.left = `${left + tip.offsetWidth + 14 > origin.width ? left - tip.offsetWidth - 12 : left + 12}px`;
    tip.style.top = `${box.top - origin.top + 14}px`;
  });

  svg.addEventListener("pointerleave", () => {
    cursor.style.visibility = "hidden";
    tip.hidden = true;
  });
}

function row(text) {
  const line = document.createElement("div");
  line.textContent = text;
  return line;
}

for (const input of document.querySelectorAll(".filter")) {
  const target = document.getElementById(input.dataset.filters);
  const rows = target.tBodies ? target.tBodies[0].rows : target.children;
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !wanted.every((word) => text.includes(word));
    }
  });
}
