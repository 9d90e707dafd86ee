//! What pages on explained directions have in common: lanes of who held the data, findings with what was seen, and
//! breakdowns.

use serde_json::{Value, json};
use taut_event::Holder;
use taut_explain::{Found, Held, Verdict, VerdictOn};

use super::page::{Page, code, escape, push, sentence};
use crate::explained_file::{held_by, holder, holder_alone};
use crate::lane::Lane;
use crate::units;

/// The lanes that have a picture, one below another. `since` says from when their time counts.
pub(super) fn lanes(page: &mut Page, drawn: &[Lane<'_>], since: &str) {
    if drawn.iter().all(|lane| lane.picture.spans.is_empty()) {
        return;
    }
    let spans = || drawn.iter().flat_map(|lane| &lane.picture.spans);
    let used: Vec<Holder> = Holder::ALL.into_iter().filter(|one| spans().any(|span| span.holder == *one)).collect();
    let from = spans().map(|span| span.begin_ns).min().unwrap_or_default();
    let to = spans().map(|span| span.begin_ns.saturating_add(span.held_ns)).max().unwrap_or_default();
    let to_json = |(index, lane): (usize, &Lane<'_>)| -> Value {
        let spans: Vec<Value> = lane
            .picture
            .spans
            .iter()
            .filter_map(|span| {
                let holder = used.iter().position(|one| *one == span.holder)?;
                Some(match lane.has_frames {
                    true => json!([span.begin_ns, span.held_ns, holder, span.frames[0], span.frames[1]]),
                    false => json!([span.begin_ns, span.held_ns, holder]),
                })
            })
            .collect();
        let [from, to] = lane.ends;
        json!({"label": format!("[{}] {from} > {to}{}", index + 1, lane.who), "spans": spans})
    };
    let lanes: Vec<Value> = drawn.iter().enumerate().map(to_json).collect();
    let (left_out, left_out_ns) = drawn.iter().fold((0_u64, 0_u64), |(count, ns), lane| {
        (count.saturating_add(lane.picture.left_out), ns.saturating_add(lane.picture.left_out_ns))
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
    let chart = json!({"kind": "lanes", "holders": holders, "lanes": lanes, "from": from, "to": to, "since": since});
    page.chart("Who held the data, and when.", &caption, chart);
    let legend: String = used
        .iter()
        .map(|one| {
            // Which end that is depends on the direction.
            let is_either = *one == Holder::PeerTurn;
            let name = if is_either { holder_alone(one.name()) } else { holder(one.name()) };
            let name = escape(&name);
            format!("<li><i style=\"background: var(--held-{})\"></i>{name}</li>", one.name())
        })
        .collect();
    push!(page.body, "<ul class=\"stages\">{legend}</ul>");
}

/// A finding.
pub(super) fn card(page: &mut Page, cause: &str, found: &Found) {
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

/// Who held the data for how long; with the packets of the longest stretches where these have numbers.
pub(super) fn breakdown(page: &mut Page, all: &[Held], has_frames: bool) {
    push!(
        page.body,
        "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">held by</th><th scope=\"col\">time</th>\
         <th scope=\"col\">share</th><th scope=\"col\">stretches</th><th scope=\"col\">longest</th>{}</tr></thead>\
         <tbody>",
        if has_frames { "<th scope=\"col\">its frames</th>" } else { "" }
    );
    for held in all {
        let longest = held.longest.first();
        let frames = longest.map_or_else(String::new, |stall| format!("{}..{}", stall.frames[0], stall.frames[1]));
        let frames = if has_frames { format!("<td>{frames}</td>") } else { String::new() };
        push!(
            page.body,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td>{}</tr>",
            escape(&held_by(held)),
            sentence(&units::time(held.held_ns)),
            sentence(&units::share(held.share)),
            units::count(held.episodes),
            longest.map_or_else(String::new, |stall| sentence(&units::time(stall.held_ns))),
            frames
        );
    }
    push!(page.body, "</tbody></table></div>");
}

/// Sentences below a heading, which may be empty.
pub(super) fn list<'a>(page: &mut Page, heading: &str, all: impl Iterator<Item = &'a str>) {
    let items: String = all.map(|one| format!("<li>{}</li>", sentence(one))).collect();
    if items.is_empty() {
        return;
    }
    if !heading.is_empty() {
        push!(page.body, "<p><strong>{}</strong></p>", escape(heading));
    }
    push!(page.body, "<ul>{items}</ul>");
}

/// The causes that were found, each with its finding.
pub(super) fn found(verdicts: &[VerdictOn]) -> Vec<(&str, &Found)> {
    let found = verdicts.iter().filter_map(|on| match &on.verdict {
        Verdict::Found(found) => Some((on.cause.as_str(), found)),
        _ => None,
    });
    found.collect()
}

/// The causes that can't be told.
pub(super) fn unknown(page: &mut Page, verdicts: &[VerdictOn]) {
    let told = verdicts.iter().filter_map(|on| match &on.verdict {
        Verdict::Unknown { missing, ask } => Some(format!("{}: {missing}. To know, {ask}.", on.cause)),
        _ => None,
    });
    let told: Vec<String> = told.collect();
    list(page, "Can't tell", told.iter().map(String::as_str));
}

/// What has a form as text, as it is.
pub(super) fn lines(page: &mut Page, id: &str, heading: &str, all: &[String]) {
    page.begin_section(id, heading);
    push!(page.body, "<div class=\"scroll\"><pre>{}</pre></div>", escape(&all.join("\n")));
    page.end_section();
}
