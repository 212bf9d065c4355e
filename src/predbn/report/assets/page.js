"use strict";
(() => {
  const { figures, configs } = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paperWidth = 640;
  let isPrinting = false;

  /* The panels of a faceted chart do not resize with the page by themselves: use at most 2 or 3 columns, and keep the
     proportions of a panel. */
  function fitted(spec, width) {
    if (!spec.facet) return { ...spec, width: "container", autosize: { type: "fit-x", contains: "padding" } };
    const columns = Math.min(spec.columns, width < 560 ? 2 : 3);
    const side = Math.floor((width - 60 - 20 * columns) / columns);
    const height = Math.round((side * spec.spec.height) / spec.spec.width);
    return { ...spec, columns, spec: { ...spec.spec, width: side, height } };
  }

  /* The scales of a chart name all series, so that those that are left keep their colours and places. */
  function without(spec, hidden) {
    const isShown = (row) => !hidden.has(row.series ?? row.level);
    const datasets = Object.entries(spec.datasets ?? {}).map(([name, rows]) => [name, rows.filter(isShown)]);
    return { ...spec, datasets: Object.fromEntries(datasets) };
  }

  function embedIn(element, spec, theme) {
    return vegaEmbed(element, spec, {
      actions: false,
      ast: true,
      config: configs[theme],
      defaultStyle: false,
      mode: "vega-lite",
      renderer: "svg",
      tooltip: { disableDefaultStyle: true },
    });
  }

  class Figure {
    constructor(element) {
      this.chart = element.querySelector(".chart");
      this.onPaper = element.querySelector(".on-paper");
      this.legend = element.querySelector(".legend");
      this.hidden = new Set();
      this.variants = figures[element.dataset.figure];
      this.selects = [...element.querySelectorAll("select")];
      this.selects.forEach((select) => select.addEventListener("change", () => this.draw()));
      dark.addEventListener("change", () => this.draw());
      this.width = this.chart.clientWidth;
      new ResizeObserver(() => {
        if (this.chart.clientWidth === this.width) return;
        this.width = this.chart.clientWidth;
        if (this.chosen()?.spec.facet) this.draw();
      }).observe(this.chart);
      this.drawn = Promise.resolve();
      this.draw();
    }

    chosen() {
      const isChosen = ({ choice }) => this.selects.every((select) => choice[select.dataset.index] === select.value);
      return this.variants.find(isChosen);
    }

    /* A name in the legend is a button that hides its series and shows it again. */
    legendItem([name, colour, area], names) {
      const item = document.createElement("li");
      const button = document.createElement("button");
      const swatch = document.createElement("i");
      swatch.style.borderColor = colour;
      swatch.style.background = area;
      button.type = "button";
      button.setAttribute("aria-pressed", !this.hidden.has(name));
      button.append(swatch, name);
      button.addEventListener("click", () => {
        if (!this.hidden.delete(name)) this.hidden.add(name);
        if (names.every((other) => this.hidden.has(other))) this.hidden.clear();
        this.draw();
      });
      item.append(button);
      return item;
    }

    /* Draw one after the other, so that the last choice is the one that stays. */
    draw() {
      if (isPrinting) return; /* It would not be ready in time. */
      this.drawn = this.drawn.then(() => this.embed()).catch((error) => {
        this.chart.textContent = `This figure could not be drawn: ${error.message}`;
        console.error(error);
      });
    }

    async embed() {
      const variant = this.chosen();
      this.view?.finalize();
      this.view = undefined;
      this.onPaper.replaceChildren();
      const names = (variant?.legend ?? []).map(([name]) => name);
      const focused = [...this.legend.children].findIndex((item) => item.contains(document.activeElement));
      this.legend.replaceChildren(...(variant?.legend ?? []).map((entry) => this.legendItem(entry, names)));
      this.legend.children[focused]?.firstChild.focus();
      this.legend.classList.toggle("paired", [4, 6].includes(this.legend.children.length));
      if (!variant) {
        this.chart.textContent = "This combination was not measured.";
        return;
      }
      const spec = without(variant.spec, this.hidden);
      this.view = await embedIn(this.chart, fitted(spec, this.chart.clientWidth), dark.matches ? "dark" : "light");
      /* Paper is light, and there is no time to draw when printing begins. */
      if (dark.matches) {
        const wide = spec.facet ? fitted(spec, paperWidth) : { ...spec, width: paperWidth };
        const { view } = await embedIn(this.onPaper, wide, "light");
        view.finalize();
      }
    }
  }

  const number = (text) => Number(text.replace("inf", "Infinity"));

  function compare(a, b, numeric) {
    if (!numeric) return a.localeCompare(b, "en", { numeric: true });
    const [x, y] = [number(a), number(b)];
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
    return x < y ? -1 : x > y ? 1 : 0;
  }

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        heads.forEach((other) => other.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        const numeric = head.classList.contains("number");
        const rows = [...body.rows].map((row) => [row.cells[column].dataset.value ?? row.cells[column].textContent, row]);
        rows.sort(([a], [b]) => sign * compare(a, b, numeric));
        body.append(...rows.map(([, row]) => row));
      });
    });
  }

  /* What is folded on the screen is printed too. */
  const folded = () => document.querySelectorAll("details.printed:not([open])");
  let opened = [];
  addEventListener("beforeprint", () => {
    isPrinting = true;
    opened = [...folded()];
    opened.forEach((details) => (details.open = true));
  });
  addEventListener("afterprint", () => {
    isPrinting = false;
    opened.forEach((details) => (details.open = false));
  });

  document.querySelectorAll("figure[data-figure]").forEach((element) => new Figure(element));
  document.querySelectorAll("table.sortable").forEach(sortable);
})();
