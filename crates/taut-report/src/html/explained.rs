//! Explained captures as a page: the verdict, who held the data and when, and what was seen, for each direction.

use serde_json::{Value, json};
use taut_event::Holder;
use taut_explain::{Direction, Found, Held, Picture, Verdict};
use taut_record::Ended;

use super::page::{Page, code, escape, push, sentence};
use crate::explained::{ExplainDocument, dark, headline, nothing_found, title};
use crate::explained_file::{ExplainedFile, holder};
use crate::{explained_joined, explained_over_all, units};

/// The document as one HTML page. The time of directions is drawn where the engine was asked for their pictures.
pub fn render_explained(document: &ExplainDocument) -> String {
    let mut page = Page::new("taut explain");
    header(&mut page, document);
    for (index, file) in document.files.iter().enumerate() {
        // A path has no end of its own on a narrow screen; its last part tells it from others.
        let name = file.file.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(&file.file);
        page.begin_section(&format!("file{}", index + 1), name);
        push!(page.body, "<p class=\"lead\">{}</p>", sentence(&headline(file)));
        let over_all = [explained_over_all::short(&file.explanation), explained_over_all::full(&file.explanation)];
        list(&mut page, "", over_all.iter().flatten().map(String::as_str));
        lanes(&mut page, file);
        for (place, direction) in file.explanation.worst.iter().enumerate() {
            one_direction(&mut page, place + 1, direction);
        }
        list(&mut page, "", file.remarks.iter().map(String::as_str));
        page.end_section();
    }
    if let Some(difference) = &document.difference {
        lines(&mut page, "difference", "What changed", &difference.to_lines());
    }
    for (index, joined) in document.joined.iter().enumerate() {
        let told = explained_joined::lines(joined, true);
        lines(&mut page, &format!("joined{}", index + 1), "Both ends on one timeline", &told);
    }
    page.finish()
}

fn header(page: &mut Page, document: &ExplainDocument) {
    push!(page.body, "<header><p class=\"brand\">Tautline</p><h1>taut explain</h1>");
    if document.ended == Ended::Interrupted {
        push!(page.body, "<p class=\"partial\" role=\"alert\">PARTIAL: interrupted</p>");
    }
    let several = document.files.len() > 1;
    for file in &document.files {
        let on = if several { format!("{}: ", file.file) } else { String::new() };
        push!(page.body, "<p class=\"answer\">{}</p>", sentence(&format!("{on}{}", answer(file))));
    }
    push!(page.body, "{}</header>", code(&document.command_line));
}

/// The verdict on a file in a sentence: that on its worst direction.
fn answer(file: &ExplainedFile) -> String {
    let Some(worst) = file.explanation.worst.first() else {
        return "No data is in it that could be explained.".to_owned();
    };
    let found = worst.verdicts.iter().find_map(|on| match &on.verdict {
        Verdict::Found(found) => Some(found),
        _ => None,
    });
    match found {
        None => nothing_found(worst),
        Some(found) => {
            let summary = found.summary.trim_end_matches('.');
            let told = format!("{summary}. It takes {} of the time.", units::share(found.cost.share));
            let before = dark(worst).filter(|_| found.cost.share < 0.5);
            before.map_or_else(|| told.clone(), |dark| format!("{dark} {told}"))
        }
    }
}

/// A lane for each direction of a file that has a picture.
fn lanes(page: &mut Page, file: &ExplainedFile) {
    let drawn: Vec<(&Direction, &Picture)> =
        file.explanation.worst.iter().filter_map(|one| Some((one, one.picture.as_ref()?))).collect();
    if drawn.iter().all(|(_, picture)| picture.spans.is_empty()) {
        return;
    }
    let spans = || drawn.iter().flat_map(|(_, picture)| &picture.spans);
    let used: Vec<Holder> = Holder::ALL.into_iter().filter(|one| spans().any(|span| span.holder == *one)).collect();
    let from = spans().map(|span| span.begin_ns).min().unwrap_or_default();
    let to = spans().map(|span| span.begin_ns.saturating_add(span.held_ns)).max().unwrap_or_default();
    let lane = |(index, (direction, picture)): (usize, &(&Direction, &Picture))| -> Value {
        let spans: Vec<Value> = picture
            .spans
            .iter()
            .filter_map(|span| {
                let holder = used.iter().position(|one| *one == span.holder)?;
                Some(json!([span.begin_ns, span.held_ns, holder, span.frames[0], span.frames[1]]))
            })
            .collect();
        json!({"label": format!("[{}] {} > {}", index + 1, direction.from, direction.to), "spans": spans})
    };
    let lanes: Vec<Value> = drawn.iter().enumerate().map(lane).collect();
    let (left_out, left_out_ns) = drawn.iter().fold((0_u64, 0_u64), |(count, ns), (_, picture)| {
        (count.saturating_add(picture.left_out), ns.saturating_add(picture.left_out_ns))
    });
    let mut caption = "Wheel or + and - zoom, drag or the arrow keys move, a double click or 0 shows all.".to_owned();
    if left_out > 0 {
        caption += &format!(
            " The {} shortest stretches are not drawn, {} in all; fewer directions (--top) leave room for more.",
            units::count(left_out),
            units::time(left_out_ns)
        );
    }
    let holders: Vec<Value> = used
        .iter()
        .map(|one| json!({"name": one.to_string(), "side": one.side().to_string(), "colour": format!("held-{}", one.name())}))
        .collect();
    let chart = json!({"kind": "lanes", "holders": holders, "lanes": lanes, "from": from, "to": to});
    page.chart("Who held the data, and when.", &caption, chart);
    let legend: String = used
        .iter()
        .map(|one| {
            let name = escape(&holder(one.name()));
            format!("<li><i style=\"background: var(--held-{})\"></i>{name}</li>", one.name())
        })
        .collect();
    push!(page.body, "<ul class=\"stages\">{legend}</ul>");
}

fn one_direction(page: &mut Page, place: usize, direction: &Direction) {
    push!(page.body, "<h3>[{place}] {}</h3>", sentence(&title(direction)));
    let found: Vec<(&str, &Found)> = direction
        .verdicts
        .iter()
        .filter_map(|on| match &on.verdict {
            Verdict::Found(found) => Some((on.cause.as_str(), found)),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        push!(page.body, "<p>{}</p>", sentence(&nothing_found(direction)));
    } else if let Some(dark) = dark(direction) {
        push!(page.body, "<p>{}</p>", sentence(&dark));
    }
    found.iter().for_each(|(cause, found)| card(page, cause, found));
    breakdown(page, &direction.breakdown);
    let unknown: Vec<String> = direction
        .verdicts
        .iter()
        .filter_map(|on| match &on.verdict {
            Verdict::Unknown { missing, ask } => Some(format!("{}: {missing}. To know, {ask}.", on.cause)),
            _ => None,
        })
        .collect();
    list(page, "Can't tell", unknown.iter().map(String::as_str));
    list(page, "What the capture lacks", direction.remarks.iter().map(String::as_str));
}

fn card(page: &mut Page, cause: &str, found: &Found) {
    push!(page.body, "<article class=\"card\"><h3>{}</h3>", sentence(&found.summary));
    push!(
        page.body,
        "<p class=\"cost\"><strong>{}</strong> of the time ({}), {}</p><ul>",
        units::share(found.cost.share),
        units::time(found.cost.held_ns),
        escape(&found.side)
    );
    for seen in &found.evidence {
        push!(page.body, "<li>{} {}</li>", sentence(&seen.text), seen.frames.map_or_else(String::new, frames));
    }
    push!(
        page.body,
        "</ul><p class=\"remedy\">{}</p><p class=\"cause\"><code>{}</code></p></article>",
        sentence(&found.remedy),
        escape(cause)
    );
}

/// Packets, as Wireshark's filter line takes them.
fn frames([first, last]: [u64; 2]) -> String {
    code(&format!("frame.number in {{{first}..{last}}}"))
}

fn breakdown(page: &mut Page, all: &[Held]) {
    push!(
        page.body,
        "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">held by</th><th scope=\"col\">time</th>\
         <th scope=\"col\">share</th><th scope=\"col\">stretches</th><th scope=\"col\">longest</th>\
         <th scope=\"col\">its frames</th></tr></thead><tbody>"
    );
    for held in all {
        let longest = held.longest.first();
        push!(
            page.body,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&holder(&held.holder)),
            sentence(&units::time(held.held_ns)),
            sentence(&units::share(held.share)),
            units::count(held.episodes),
            longest.map_or_else(String::new, |stall| sentence(&units::time(stall.held_ns))),
            longest.map_or_else(String::new, |stall| format!("{}..{}", stall.frames[0], stall.frames[1]))
        );
    }
    push!(page.body, "</tbody></table></div>");
}

fn list<'a>(page: &mut Page, heading: &str, all: impl Iterator<Item = &'a str>) {
    let items: String = all.map(|one| format!("<li>{}</li>", sentence(one))).collect();
    if items.is_empty() {
        return;
    }
    if !heading.is_empty() {
        push!(page.body, "<p><strong>{}</strong></p>", escape(heading));
    }
    push!(page.body, "<ul>{items}</ul>");
}

/// What has a form as text, as it is.
fn lines(page: &mut Page, id: &str, heading: &str, all: &[String]) {
    page.begin_section(id, heading);
    push!(page.body, "<div class=\"scroll\"><pre>{}</pre></div>", escape(&all.join("\n")));
    page.end_section();
}
