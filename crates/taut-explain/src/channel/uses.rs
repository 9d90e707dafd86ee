//! What a link was like while data waited for it and went: that may change within a log, and after the data.

use taut_event::RadioLink;

/// So many kinds of a link are told apart.
const MOST: usize = 8;

/// A link as it was for a part of the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) link: RadioLink,
    /// Time that packets were on the air or waited for the link, its controller or credits.
    pub(super) ns: u64,
    /// Most packets that went within one interval; 0: not known.
    pub(super) per_interval: u64,
}

/// The kinds in which a direction used its link.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses(Vec<Use>);

impl Uses {
    pub(super) fn add(&mut self, link: &RadioLink, ns: u64) {
        if ns > 0 {
            self.of(link).ns += ns;
        }
    }

    /// So many packets went within one interval.
    pub(super) fn went(&mut self, link: &RadioLink, packets: u64) {
        let its = self.of(link);
        its.per_interval = its.per_interval.max(packets);
    }

    /// The kind that had most of the time.
    pub(super) fn main(&self) -> Option<&Use> {
        self.0.iter().max_by_key(|its| its.ns)
    }

    /// All that had a part worth a word.
    pub(super) fn all(&self) -> impl Iterator<Item = &Use> {
        let whole: u64 = self.0.iter().map(|its| its.ns).sum();
        self.0.iter().filter(move |its| its.ns > whole / 50)
    }

    fn of(&mut self, link: &RadioLink) -> &mut Use {
        let index = self.0.iter().position(|its| its.link == *link).unwrap_or_else(|| {
            if self.0.len() == MOST {
                let least = (0..MOST).min_by_key(|&index| self.0[index].ns).unwrap_or(0);
                self.0.remove(least);
            }
            self.0.push(Use { link: *link, ns: 0, per_interval: 0 });
            self.0.len() - 1
        });
        &mut self.0[index]
    }
}
