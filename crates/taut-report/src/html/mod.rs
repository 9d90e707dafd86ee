//! One self-contained page: no network, no server, readable without scripts, charts with them.

mod air;
mod chart;
mod explained;
mod held;
mod mesh;
mod page;
mod section;
mod traced;

use taut_record::Recording;

use crate::sheet::Groups;
use crate::{Document, prose, units};
use page::{code, escape, push, sentence};

pub(crate) use chart::{Spread, SpreadRow, add_spread};
pub use explained::render_explained;
pub use mesh::render_mesh;
pub(crate) use page::Page;
pub(crate) use section::sheet_tables;
pub use traced::render_traced;

/// The document as one HTML page.
pub fn render(document: &Document) -> String {
    let recording = &document.recording;
    let mut page = Page::new(&format!("taut {}", recording.command));
    header(&mut page, document);
    findings(&mut page, document);
    host(&mut page, recording);
    section::all(&mut page, &Groups::of(recording));
    page.finish()
}

fn header(page: &mut Page, document: &Document) {
    let recording = &document.recording;
    let (date, took) = (units::date(recording.started_unix_s), units::time(recording.duration_ns));
    push!(page.body, "<header><p class=\"brand\">Tautline</p><h1>taut {}</h1>", escape(&recording.command));
    if let Some(partial) = prose::partial(recording) {
        push!(page.body, "<p class=\"partial\" role=\"alert\">{}</p>", escape(&partial));
    }
    push!(page.body, "<p class=\"answer\">{}</p>", sentence(&prose::answer(document)));
    push!(page.body, "<p class=\"when\">{date}, took {took}</p>");
    if let Some(again) = prose::explained_again(document) {
        push!(page.body, "<p class=\"when\">{}</p>", escape(&again));
    }
    push!(page.body, "{}</header>", code(&recording.command_line));
}

/// The top of a page that belongs to no one document.
pub(crate) fn comparison_header(page: &mut Page, answer: &str) {
    let answer = sentence(answer);
    push!(
        page.body,
        "<header><p class=\"brand\">Tautline</p><h1>taut compare</h1><p class=\"answer\">{answer}</p></header>"
    );
}

fn findings(page: &mut Page, document: &Document) {
    if document.findings.is_empty() {
        return;
    }
    page.begin_section("findings", "Findings");
    for finding in &document.findings {
        push!(page.body, "<article class=\"card\"><h3>{}</h3>", sentence(&finding.summary));
        match &finding.proof {
            Some(proof) => push!(
                page.body,
                "<p class=\"cost\"><strong>{}</strong>, and <strong>{}</strong> with {}, on {}</p>",
                units::bit_rate(proof.before_bps),
                units::bit_rate(proof.after_bps),
                escape(&proof.change),
                escape(&finding.on)
            ),
            None => push!(
                page.body,
                "<p class=\"cost\"><strong>{}</strong> of the {}{}, on {}</p>",
                units::share(finding.share),
                finding.share_of.name(),
                prose::each(finding).map_or_else(String::new, |each| format!(", {each}")),
                escape(&finding.on)
            ),
        }
        let evidence: String = finding.evidence.iter().map(|line| format!("<li>{}</li>", sentence(line))).collect();
        push!(page.body, "<ul>{evidence}</ul><p class=\"remedy\">{}</p>", sentence(&finding.remedy));
        if let Some(proof) = &finding.proof {
            push!(page.body, "<p>{}</p>", code(&proof.command));
        }
        push!(page.body, "<p class=\"cause\"><code>{}</code></p></article>", escape(&finding.cause));
    }
    page.end_section();
}

fn host(page: &mut Page, recording: &Recording) {
    page.begin_section("host", "Host");
    let list = |facts: Vec<(&str, String)>| -> String {
        facts.iter().map(|(name, fact)| format!("<div><dt>{name}</dt><dd>{}</dd></div>", escape(fact))).collect()
    };
    push!(page.body, "<dl class=\"facts\">{}</dl>", list(prose::host(&recording.host)));
    push!(
        page.body,
        "<h3>Floor</h3><p class=\"lead\">What the tool costs when nothing is measured; no figure below it means anything.</p>"
    );
    push!(page.body, "<dl class=\"facts\">{}</dl>", list(prose::floor(&recording.host)));
    page.end_section();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn the_page_loads_nothing() {
        let html = render(&synthetic::survey());
        for loading in
            ["src=", "href=\"http", "href=\"//", "@import", "url(", "fetch(", "XMLHttpRequest", "WebSocket", "eval("]
        {
            assert!(!html.contains(loading), "{loading}");
        }
        // The only addresses are the licence's, in a comment.
        for (at, _) in html.match_indices("https://").chain(html.match_indices("http://")) {
            let before = &html[..at];
            assert!(before.rfind("/*") > before.rfind("*/"), "{}", &html[at.saturating_sub(60)..at + 60]);
        }
        assert!(html.contains("default-src 'none'"));
    }

    #[test]
    fn data_and_text_cannot_end_the_script_or_start_a_tag() {
        let html = render(&synthetic::survey());
        assert!(html.contains("stayed unsent &lt;/script&gt;&lt;b&gt;"));
        let data = html.split("<script type=\"application/json\" id=\"charts\">").nth(1).unwrap();
        let (data, _) = data.split_once("</script>").unwrap();
        assert!(!data.contains('<'));
        let charts: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(charts.as_array().unwrap().len(), html.matches("class=\"chart\"").count());
        assert_eq!(html.matches("</script>").count(), 3);
    }

    #[test]
    fn what_gave_nothing_is_still_a_page() {
        use taut_record::{Ended, Row};
        let mut document = synthetic::survey();
        document.findings.clear();
        document.recording.ended = Ended::Interrupted;
        document.recording.results.truncate(1);
        if let Row::Echo(row) = &mut document.recording.results[0] {
            (row.rtt_ns, row.lost) = (None, row.sent);
            (row.curve, row.exceed, row.rounds) = (Vec::new(), Vec::new(), Vec::new());
        }
        let html = render(&document);
        assert!(html.contains("PARTIAL: interrupted") && !html.contains("class=\"chart\""));
        assert!(crate::table::render(&document, crate::table::Style::default()).contains("20,000  20,000"));
        document.recording.results.clear();
        assert!(render(&document).contains("Nothing was measured."));
    }

    #[test]
    fn a_survey_stays_small() {
        let size = render(&synthetic::survey()).len();
        assert!(size < 600_000, "{size}");
    }

    #[test]
    fn tags_are_balanced() {
        let html = render(&synthetic::survey());
        for tag in [
            "section", "table", "tbody", "thead", "tr", "figure", "article", "dl", "details", "ul", "p", "header",
            "main",
        ] {
            let opened = html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn every_figure_of_the_text_is_in_the_page() {
        let document = synthetic::survey();
        let (html, text) = (render(&document), crate::table::render(&document, crate::table::Style::default()));
        let times = text
            .split([' ', '\n', '(', ')', ',', ';'])
            .filter(|word| word.contains('.') && word.parse::<f64>().is_ok());
        for time in times {
            assert!(html.contains(time), "{time}");
        }
    }
}
