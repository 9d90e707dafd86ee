//! Lists of lio_listio(3) with a notification for the whole.

use super::notice::{Event, Notice};

/// Lists under way.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    entries: Vec<List>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct List {
    left: u32,
    event: Event,
}

impl Lists {
    /// A list of this many operations.
    pub(crate) fn begin(&mut self, left: u32, event: Event) -> u32 {
        let list = List { left, event };
        if let Some(index) = self.free.pop() {
            self.entries[index as usize] = list;
            return index;
        }
        self.entries.push(list);
        self.entries.len() as u32 - 1
    }

    /// One operation of the list is done; the last one's gives the notice.
    pub(crate) fn leave(&mut self, index: u32) -> Option<Notice> {
        let list = &mut self.entries[index as usize];
        list.left -= 1;
        if list.left > 0 {
            return None;
        }
        self.free.push(index);
        Some(Notice::new(&list.event, 0))
    }
}
