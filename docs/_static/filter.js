// The catalogue of differences: rows by words, topic, and whether anything tells the user.
const article = document.querySelector("article");
const rows = [...article.querySelectorAll("table")].flatMap((table) => {
  const topic = table.closest("section").querySelector("h2").firstChild.textContent;
  return [...table.tBodies[0].rows].map((row) => ({row, topic, text: row.innerText.toLowerCase()}));
});
const unique = (values) => [...new Set(values)];
const texts = article.querySelector("[data-filter]").dataset;

const box = document.createElement("form");
box.className = "filter";
box.append(...[
  Object.assign(document.createElement("input"), {type: "search", placeholder: texts.search}),
  select(texts.topics, unique(rows.map((one) => one.topic))),
  select(texts.any, unique(rows.map((one) => one.row.cells[2].innerText))),
  Object.assign(document.createElement("output")),
]);
const [words, topic, told, count] = box.children;
for (const field of [words, topic, told]) field.ariaLabel = field.placeholder ?? field.options[0].text;
article.querySelector("[data-filter]").replaceWith(box);
box.addEventListener("input", filter);
box.addEventListener("submit", (event) => event.preventDefault());
filter();

function select(all, values) {
  const menu = document.createElement("select");
  menu.append(new Option(all, ""), ...values.map((value) => new Option(value)));
  return menu;
}

function filter() {
  const wanted = words.value.toLowerCase().split(/\s+/);
  let shown = 0;
  for (const one of rows) {
    const fits = wanted.every((word) => one.text.includes(word))
      && (!topic.value || one.topic === topic.value)
      && (!told.value || one.row.cells[2].innerText === told.value);
    one.row.hidden = !fits;
    shown += fits;
  }
  for (const table of article.querySelectorAll("table")) {
    table.closest("section").hidden = [...table.tBodies[0].rows].every((row) => row.hidden);
  }
  count.textContent = texts.shown.replace("{n}", shown).replace("{all}", rows.length);
}
