"use strict";
(() => {
  const { figures, configs } = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");

  /* The panels of a faceted chart do not resize with the page by themselves: use at most 2 or 3 columns, and keep the
     proportions of a panel. */
  function fitted(spec, width) {
    if (!spec.facet) return { ...spec, width: "container", autosize: { type: "fit-x", contains: "padding" } };
    const columns = Math.min(spec.columns, width < 560 ? 2 : 3);
    const side = Math.floor((width - 60 - 20 * columns) / columns);
    const height = Math.round((side * spec.spec.height) / spec.spec.width);
    return { ...spec, columns, spec: { ...spec.spec, width: side, height } };
  }

  function legendItem([name, colour, area]) {
    const item = document.createElement("li");
    const swatch = document.createElement("i");
    swatch.style.borderColor = colour;
    swatch.style.background = area;
    item.append(swatch, name);
    return item;
  }

  class Figure {
    constructor(element) {
      this.chart = element.querySelector(".chart");
      this.legend = element.querySelector(".legend");
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

    /* Draw one after the other, so that the last choice is the one that stays. */
    draw() {
      this.drawn = this.drawn.then(() => this.embed()).catch((error) => {
        this.chart.textContent = `This figure could not be drawn: ${error.message}`;
        console.error(error);
      });
    }

    async embed() {
      const variant = this.chosen();
      this.view?.finalize();
      this.view = undefined;
      this.legend.replaceChildren(...(variant?.legend ?? []).map(legendItem));
      this.legend.classList.toggle("paired", [4, 6].includes(this.legend.children.length));
      if (!variant) {
        this.chart.textContent = "This combination was not measured.";
        return;
      }
      this.view = await vegaEmbed(this.chart, fitted(variant.spec, this.chart.clientWidth), {
        actions: false,
        ast: true,
        config: configs[dark.matches ? "dark" : "light"],
        defaultStyle: false,
        mode: "vega-lite",
        renderer: "svg",
        tooltip: { disableDefaultStyle: true },
      });
    }
  }

  const number = (text) => Number(text.replace("−", "-").replace("∞", "Infinity").replace("–", "NaN"));

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
        const rows = [...body.rows].map((row) => [row.cells[column].textContent, row]);
        rows.sort(([a], [b]) => sign * compare(a, b, numeric));
        body.append(...rows.map(([, row]) => row));
      });
    });
  }

  document.querySelectorAll("figure").forEach((element) => new Figure(element));
  document.querySelectorAll("table.sortable").forEach(sortable);
})();
