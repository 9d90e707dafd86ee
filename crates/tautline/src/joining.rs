//! Several captures of one path on one timeline.

use taut_capture::{Packet, decode};
use taut_event::SegmentFlags;
use taut_explain::join::{Joined, NotJoined, Sighting, Sightings, join as on_one_timeline};
use taut_report::ExplainedFile;

/// What a packet is held against those of the other file by, if it is a segment of TCP with a time.
pub(crate) fn sighting(packet: &Packet<'_>) -> Option<Sighting> {
    let at = packet.at?;
    let tcp = decode(packet).ok()?;
    Some(Sighting {
        at,
        frame: packet.frame,
        from: tcp.ends.from(),
        to: tcp.ends.to(),
        sequence: tcp.sequence,
        acknowledgement: tcp.acknowledgement,
        flags: SegmentFlags(tcp.flags),
        payload: tcp.payload,
        window: tcp.window,
        identification: tcp.identification,
        timestamps: tcp.timestamps,
        sack: tcp.sack,
        permits_sack: tcp.permits_sack,
    })
}

/// A file on the timeline of the first one. Where that can't be, it is an error if it must be; else the file says
/// why, unless they have nothing to do with each other.
pub(crate) fn join(
    (reference, first): &(String, Sightings),
    file: &mut ExplainedFile,
    other: &Sightings,
    is_wanted: bool,
) -> anyhow::Result<Option<Joined>> {
    match on_one_timeline(first, other) {
        Ok(joined) => Ok(Some(Joined { reference: reference.clone(), other: file.file.clone(), ..joined })),
        Err(why) if is_wanted => anyhow::bail!("{reference} and {} can't be joined: {why}", file.file),
        Err(NotJoined::NothingInCommon | NotJoined::OtherPackets) => Ok(None),
        Err(why) => {
            file.remarks.push(format!("It is not joined with {reference}: {why}."));
            Ok(None)
        }
    }
}
