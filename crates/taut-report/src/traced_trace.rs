//! Live traces for the Perfetto trace viewer: who held the data of each direction, and when.

use crate::lane::{self, Lane};
use crate::traced::TraceDocument;

/// What was drawn of the directions that the document reports, as one JSON trace. Time 0 is the trace's first event.
pub fn render(document: &TraceDocument) -> String {
    lane::render(lanes((0, ""), document))
}

/// What the picture lacks, in a sentence; nothing where it lacks nothing.
pub fn left_out(document: &TraceDocument) -> Option<String> {
    lane::left_out(lanes((0, ""), document))
}

/// The directions that have a picture, in the group given.
pub(crate) fn lanes<'a>(group: (usize, &'a str), document: &'a TraceDocument) -> impl Iterator<Item = Lane<'a>> {
    document.result.worst.iter().filter_map(move |direction| {
        // Where both ends are traced, each of them tells of both directions.
        let verb = if direction.is_outgoing { "sent" } else { "received" };
        let by = direction.program.as_deref().map_or_else(String::new, |program| format!(" by {program}"));
        Some(Lane {
            group,
            ends: [&direction.from, &direction.to],
            who: format!(", {verb}{by}"),
            begin_ns: direction.begin_ns,
            span_ns: direction.span_ns,
            verdicts: &direction.verdicts,
            picture: direction.picture.as_ref()?,
            has_frames: false,
        })
    })
}
