//! The honest number of lost edges: interrupts of a line less edges that were handed over.
//!
//! Neither interface tells of all of them. The character device numbers events when its thread takes them up,
//! and so misses edges that came while that was on its way; sysfs only tells that there was at least one. The
//! kernel's own count of interrupts (`/sys/kernel/irq/N/per_cpu_count`) has all that the chip reported.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

const IRQS: &str = "/sys/kernel/irq";

/// Numbers of interrupts that somebody of this name handles.
pub(super) fn handled_by(name: &str) -> BTreeSet<u32> {
    let numbers = std::fs::read_dir(IRQS).into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter(|number| {
            let actions = std::fs::read_to_string(format!("{IRQS}/{number}/actions")).unwrap_or_default();
            actions.trim_end().split(',').any(|action| action == name)
        })
        .collect()
}

/// Edges handed over and lost.
#[derive(Debug)]
pub(super) struct Tally {
    /// None where the kernel does not tell.
    counts: Option<File>,
    began: u64,
    taken: u64,
    told: u64,
    /// The count when it was quiet before.
    quiet_at: Option<u64>,
}

impl Tally {
    /// Begins to count; `new` are the interrupts that came into being with the line, which has to be one.
    pub(super) fn begin(new: &BTreeSet<u32>) -> Self {
        let counts = match new.iter().copied().collect::<Vec<_>>()[..] {
            [number] => File::open(format!("{IRQS}/{number}/per_cpu_count")).ok(),
            _ => None,
        };
        let began = counts.as_ref().and_then(total).unwrap_or(0);
        Self { counts, began, taken: 0, told: 0, quiet_at: None }
    }

    /// Without the kernel's count: what is debounced has more interrupts than edges.
    pub(super) const fn without_interrupts() -> Self {
        Self { counts: None, began: 0, taken: 0, told: 0, quiet_at: None }
    }

    /// An edge was handed over, and so many before it are known to be lost.
    pub(super) const fn take(&mut self, lost: u64) {
        self.taken += 1;
        self.told += lost;
        self.quiet_at = None;
    }

    /// What is told of losses that were only concluded, from a level that did not change: nothing
    /// where the count will tell.
    pub(super) const fn concluded(&self, lost: u64) -> u64 {
        if self.counts.is_some() { 0 } else { lost }
    }

    /// Nothing came for a while: edges found lost since they were told of. What is on its way is
    /// none of them, so it has to be quiet twice with the same count.
    pub(super) fn quiet(&mut self) -> u64 {
        let count = self.counts.as_ref().and_then(total);
        let is_settled = count.is_some() && count == self.quiet_at;
        self.quiet_at = count;
        if is_settled { self.settle(count) } else { 0 }
    }

    /// The same when nothing more will be taken.
    pub(super) fn finish(&mut self) -> u64 {
        self.settle(self.counts.as_ref().and_then(total))
    }

    fn settle(&mut self, count: Option<u64>) -> u64 {
        let lost = count.unwrap_or(0).saturating_sub(self.began).saturating_sub(self.taken);
        let new = lost.saturating_sub(self.told);
        self.told += new;
        new
    }
}

/// Interrupts on all processors.
fn total(counts: &File) -> Option<u64> {
    let mut text = [0; 4096];
    let length = counts.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.trim_end().split(',').map(|count| count.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_count_settles_once_it_is_quiet_twice() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("per_cpu_count");
        let set = |text: &str| std::fs::write(&path, text).unwrap();
        set("100,20\n");
        let counts = File::open(&path).ok();
        let mut tally = Tally { began: counts.as_ref().and_then(total).unwrap(), ..Tally::without_interrupts() };
        tally.counts = counts;
        // Ten edges, of which seven were handed over, and one more was missing by its number.
        set("104,26\n");
        (0..6).for_each(|_| tally.take(0));
        tally.take(1);
        assert_eq!((tally.quiet(), tally.quiet(), tally.quiet()), (0, 2, 0));
        // Another one that is on its way, then arrives.
        set("105,26\n");
        assert_eq!(tally.quiet(), 0);
        tally.take(0);
        assert_eq!((tally.quiet(), tally.quiet()), (0, 0));
        set("105,29\n");
        assert_eq!((tally.finish(), tally.finish()), (3, 0));
        assert_eq!(tally.concluded(1), 0);
        assert_eq!(Tally::without_interrupts().concluded(1), 1);
    }
}
