use taut_air::Category;

/// A line of the slack ledger of a radio link, for reports.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Its name in recordings.
    pub name: &'static str,
    /// Its name in words.
    pub words: &'static str,
    /// What the time went into, or who held the data.
    pub meaning: &'static str,
    /// Whether nothing was on the air.
    pub idle: bool,
}

/// All lines: what was on the air, then idle time by who held the data.
pub const LINES: [Line; Category::ALL.len()] = {
    let mut lines = [line(Category::Payload); Category::ALL.len()];
    let mut i = 0;
    while i < lines.len() {
        lines[i] = line(Category::ALL[i]);
        i += 1;
    }
    lines
};

impl Line {
    /// The line of this name.
    pub fn of(name: &str) -> Option<&'static Self> {
        LINES.iter().find(|line| line.name == name)
    }

    /// Its place among all lines; names that are no line's stand last.
    pub fn place(name: &str) -> usize {
        LINES.iter().position(|line| line.name == name).unwrap_or(LINES.len())
    }
}

const fn line(category: Category) -> Line {
    let words = match category {
        Category::Payload => "payload",
        Category::Headers => "headers",
        Category::Ifs => "inter frame space",
        Category::EmptyPolls => "empty PDUs",
        Category::Signalling => "credits",
        Category::Control => "link control",
        Category::Retransmission => "retransmissions",
        Category::ApplicationHadNone => "application had none",
        Category::WakeUp => "waking up",
        Category::NoCredit => "no credit",
        Category::CreditInFlight => "credit in flight",
        Category::HostTransport => "host transport",
        Category::ControllerBuffer => "controller buffers",
        Category::EventClosedEarly => "event closed early",
        Category::DoesNotFit => "does not fit",
    };
    Line { name: category.name(), words, meaning: category.meaning(), idle: category.is_idle() }
}
