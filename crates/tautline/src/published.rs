//! What is said of messages that were published to a broker.

use taut_link::broker::WrittenAccount;

/// Lines for people.
pub(crate) fn lines(written: &WrittenAccount) -> Vec<String> {
    let confirmed = written
        .confirmed_by_broker
        .map_or_else(|| "the broker acknowledges none".to_owned(), |count| format!("{count} confirmed by the broker"));
    let again =
        if written.again > 0 { format!(", {} of them given to it again", written.again) } else { String::new() };
    let mut lines = vec![format!(
        "wrote to {}: {} sent, {confirmed}{again}, {} dropped here",
        written.topic, written.sent, written.dropped_here
    )];
    lines.extend(written.readers.iter().map(|reader| {
        let unanswered = match reader.unanswered {
            0 => String::new(),
            count => format!(" (it has said nothing of {count} of them)"),
        };
        format!(
            "reader {}: {} confirmed by it, {} twice, {} out of order, {} missing{unanswered}",
            reader.name, reader.read, reader.twice, reader.out_of_order, reader.missing
        )
    }));
    if written.has_more_readers {
        lines.push("more readers told what they read: these are the first ones".to_owned());
    }
    if written.sent == 0 {
        return lines;
    }
    if !written.has_envelope {
        lines.push("envelope=off: nothing can be told of what was missing".to_owned());
    } else if written.readers.is_empty() {
        lines.push("no reader was ever heard of: nobody knows what became of the messages".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_no_messages_nothing_became() {
        let none = WrittenAccount { topic: "t".to_owned(), has_envelope: true, ..WrittenAccount::default() };
        assert_eq!(lines(&none), ["wrote to t: 0 sent, the broker acknowledges none, 0 dropped here"]);
        assert_eq!(lines(&WrittenAccount { sent: 1, ..none }).len(), 2);
    }
}
