//! The state of a socket as numbers: only those that changed since the state before are written.

use std::fmt::Write;

use taut_event::{Recovery, SocketState};

/// How many numbers a state has.
const COUNT: usize = 20;
/// What is not known.
const NONE: u64 = u64::MAX;

/// A state as numbers, in the order of the structure's members; what came later stands at the end.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Numbers([u64; COUNT]);

impl Numbers {
    pub(super) fn of(state: &SocketState) -> Self {
        let flag = |value: Option<bool>| value.map_or(NONE, u64::from);
        Self([
            state.unsent_bytes.into(),
            state.in_flight_bytes.into(),
            state.unread_bytes.into(),
            state.in_flight_segments.into(),
            state.congestion_window_segments.into(),
            state.slow_start_threshold_segments.into(),
            state.send_window_bytes.map_or(NONE, u64::from),
            state.mss_bytes.into(),
            state.is_opening.into(),
            match state.recovery {
                Recovery::None => 0,
                Recovery::Repeating => 1,
                Recovery::AfterTimeout => 2,
            },
            state.timeouts.into(),
            state.window_probes.into(),
            flag(state.small_in_flight),
            state.pacing_wait_ns.into(),
            state.send_buffer_full.into(),
            flag(state.no_delay),
            flag(state.cork),
            state.is_ended.into(),
            state.device_bytes.into(),
            state.duplicates.into(),
        ])
    }

    /// `None` if a number is none that such a state has.
    pub(super) fn state(self) -> Option<SocketState> {
        let word = |at: usize| u32::try_from(self.0[at]).ok();
        let byte = |at: usize| u8::try_from(self.0[at]).ok();
        let is = |at: usize| match self.0[at] {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        // Outside: whether it can be; inside: whether it is known.
        let flag = |at: usize| if self.0[at] == NONE { Some(None) } else { is(at).map(Some) };
        Some(SocketState {
            unsent_bytes: word(0)?,
            in_flight_bytes: word(1)?,
            unread_bytes: word(2)?,
            in_flight_segments: word(3)?,
            congestion_window_segments: word(4)?,
            slow_start_threshold_segments: word(5)?,
            send_window_bytes: if self.0[6] == NONE { None } else { Some(word(6)?) },
            mss_bytes: word(7)?,
            is_opening: is(8)?,
            recovery: match self.0[9] {
                0 => Recovery::None,
                1 => Recovery::Repeating,
                2 => Recovery::AfterTimeout,
                _ => return None,
            },
            timeouts: byte(10)?,
            window_probes: byte(11)?,
            small_in_flight: flag(12)?,
            pacing_wait_ns: word(13)?,
            send_buffer_full: is(14)?,
            no_delay: flag(15)?,
            cork: flag(16)?,
            is_ended: is(17)?,
            device_bytes: word(18)?,
            duplicates: word(19)?,
        })
    }

    /// What is other than in the state before: `;` between the numbers, nothing where it is the same, `-` where it is
    /// not known; what is the same at the end is left out.
    pub(super) fn write(self, before: Self, to: &mut String) {
        let last = (0..COUNT).rfind(|&at| self.0[at] != before.0[at]);
        for at in 0..last.map_or(0, |last| last + 1) {
            if at > 0 {
                to.push(';');
            }
            // Writing to a string does not fail.
            let _ = match self.0[at] {
                same if same == before.0[at] => Ok(()),
                NONE => write!(to, "-"),
                number => write!(to, "{number}"),
            };
        }
    }

    pub(super) fn read(text: &str, before: Self) -> Option<Self> {
        let mut read = before;
        if text.is_empty() {
            return Some(read);
        }
        for (at, word) in text.split(';').enumerate() {
            let number = read.0.get_mut(at)?;
            match word {
                "" => {}
                "-" => *number = NONE,
                word => *number = word.parse().ok().filter(|number| *number != NONE)?,
            }
        }
        Some(read)
    }
}
