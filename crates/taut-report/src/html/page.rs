use serde_json::Value;

const TEMPLATE: &str = include_str!("../../assets/page.html");
const CSS: &str = include_str!("../../assets/report.css");
const JS: &str = include_str!("../../assets/report.js");
const UPLOT_CSS: &str = include_str!("../../assets/vendor/uplot/uPlot.min.css");
const UPLOT_JS: &str = include_str!("../../assets/vendor/uplot/uPlot.iife.min.js");
const UPLOT_LICENCE: &str = include_str!("../../assets/vendor/uplot/LICENSE");

/// A page while it is written: its body, and the data of its charts.
pub(crate) struct Page {
    pub(crate) body: String,
    title: String,
    contents: Vec<(String, String)>,
    charts: Vec<Value>,
}

/// Formats onto a string.
macro_rules! push {
    ($out:expr, $($format:tt)*) => { $out.push_str(&format!($($format)*)) };
}
pub(crate) use push;

impl Page {
    pub(crate) fn new(title: &str) -> Self {
        Self { body: String::new(), title: title.to_owned(), contents: Vec::new(), charts: Vec::new() }
    }

    pub(crate) fn begin_section(&mut self, id: &str, heading: &str) {
        push!(
            self.body,
            "<section id=\"{id}\" aria-labelledby=\"{id}-heading\"><h2 id=\"{id}-heading\">{}</h2>",
            escape(heading)
        );
        self.contents.push((id.to_owned(), heading.to_owned()));
    }

    pub(crate) fn end_section(&mut self) {
        self.body.push_str("</section>\n");
    }

    /// Room for a chart, which the script fills.
    pub(crate) fn chart(&mut self, title: &str, caption: &str, data: Value) {
        let index = self.charts.len();
        push!(
            self.body,
            "<figure><figcaption><strong>{}</strong> {}</figcaption><div class=\"chart\" data-chart=\"{index}\" role=\"img\" aria-label=\"{}\"></div></figure>",
            escape(title),
            escape(caption),
            escape(title)
        );
        self.charts.push(data);
    }

    pub(crate) fn finish(self) -> String {
        let contents: String =
            self.contents.iter().map(|(id, heading)| format!("<a href=\"#{id}\">{}</a>", escape(heading))).collect();
        // `<` can stand in JSON strings only, and there it may as well be escaped.
        let charts = Value::Array(self.charts).to_string().replace('<', "\\u003c");
        let parts = [
            ("{{title}}", escape(&self.title)),
            ("{{css}}", format!("{UPLOT_CSS}{CSS}")),
            ("{{contents}}", contents),
            ("{{body}}", self.body),
            ("{{charts}}", charts),
            ("{{uplot}}", format!("/*! {UPLOT_LICENCE} */\n{UPLOT_JS}")),
            ("{{js}}", JS.to_owned()),
        ];
        fill(TEMPLATE, &parts)
    }
}

/// Puts each part in its place, once and in order, so that a part that looks like a place stays as it is.
fn fill(template: &str, parts: &[(&str, String)]) -> String {
    let mut out = String::new();
    let mut rest = template;
    for (place, part) in parts {
        // The template is ours: a place that is missing or out of order shows in every test.
        let (before, after) = rest.split_once(place).expect("the template has every place in order");
        out.push_str(before);
        out.push_str(part);
        rest = after;
    }
    out + rest
}

/// Text for HTML, within elements or in quoted attributes.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A sentence for HTML in which no line ends between a figure and its unit.
pub(crate) fn sentence(text: &str) -> String {
    const UNITS: [&str; 7] = ["ns", "µs", "ms", "s", "%", "B", "KiB"];
    let mut out = String::new();
    let mut after_figure = false;
    for (i, word) in text.split(' ').enumerate() {
        let unit = word.trim_end_matches(['.', ',', ':', ';', ')']);
        if i > 0 {
            out.push(if after_figure && UNITS.contains(&unit) { '\u{a0}' } else { ' ' });
        }
        out.push_str(&escape(word));
        after_figure = word.ends_with(|c: char| c.is_ascii_digit());
    }
    out
}

/// A command to be copied.
pub(crate) fn code(command: &str) -> String {
    format!("<span class=\"copy\"><code>{}</code></span>", escape(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stay_with_their_units() {
        assert_eq!(
            sentence("took 22.1 ms, 5 % of <all> 3 messages"),
            "took 22.1\u{a0}ms, 5\u{a0}% of &lt;all&gt; 3 messages"
        );
    }

    #[test]
    fn a_part_that_looks_like_a_place_stays() {
        let parts = [("{{a}}", "{{b}}".to_owned()), ("{{b}}", "x".to_owned())];
        assert_eq!(fill("<{{a}}|{{b}}>", &parts), "<{{b}}|x>");
    }
}
