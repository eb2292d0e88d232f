const phone = matchMedia("(max-width: 40rem)");
const charts = [];
// Beside the rows of a chart, names as long as the window has room for.
function names(figure) {
  return phone.matches && figure.onPhone ? figure.onPhone : figure.layout.yaxis.ticktext;
}
function draw() {
  for (const [name, figure] of Object.entries(FIGURES)) {
    const place = document.getElementById(name);
    const layout = { ...figure.layout, yaxis: { ...figure.layout.yaxis, ticktext: names(figure) } };
    Plotly.newPlot(place, figure.data, layout, {
      displayModeBar: false, responsive: true, scrollZoom: false,
    });
    charts.push(place);
    if (figure.onPhone) {
      phone.addEventListener("change", () => {
        Plotly.relayout(place, { "yaxis.ticktext": names(figure) });
      });
    }
  }
}
async function unpacked() {
  const packed = atob(document.getElementById("plotly").textContent);
  const bytes = Uint8Array.from(packed, (each) => each.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}
unpacked().then((text) => {
  const script = document.createElement("script");
  script.textContent = text;
  document.head.append(script);
  draw();
}).catch((error) => {
  for (const place of document.querySelectorAll(".chart")) {
    place.style.height = "auto";
    place.textContent = "This browser can't draw the chart; the numbers are in the tables.";
  }
  throw error;
});
// On paper nothing is folded, and a chart is as wide as the page.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  folded.forEach((part) => { part.open = true; });
  charts.forEach((place) => Plotly.relayout(place, { width: 660, autosize: false }));
});
addEventListener("afterprint", () => {
  folded.forEach((part) => { part.open = false; });
  charts.forEach((place) => Plotly.relayout(place, { width: null, autosize: true }));
});
