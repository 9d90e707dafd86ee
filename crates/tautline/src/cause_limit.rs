use taut_explain::CauseIn;

/// The most of a direction's time that a cause may take: `nagle_delayed_ack=1%`.
#[derive(Clone, Debug)]
pub(crate) struct CauseLimit {
    pub(crate) cause: String,
    /// From 0 to 1.
    pub(crate) share: f64,
}

impl CauseLimit {
    /// What is written for one of `causes`.
    pub(crate) fn parse(text: &str, causes: impl Fn() -> Vec<&'static str>) -> Result<Self, String> {
        let names = || causes().join(", ");
        let wrong = || format!("`{text}`: write CAUSE=SHARE%, such as nagle_delayed_ack=1%; causes: {}", names());
        let (cause, share) = text.split_once('=').ok_or_else(wrong)?;
        if !causes().contains(&cause) {
            return Err(format!("`{cause}` is no cause; there are {}", names()));
        }
        let percent: f64 = share.strip_suffix('%').and_then(|share| share.trim().parse().ok()).ok_or_else(wrong)?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(format!("`{text}`: a share is from 0% to 100%"));
        }
        Ok(Self { cause: cause.to_owned(), share: percent / 100.0 })
    }

    /// Whether the cause takes more than it may, which is said, as is what can't be told. `seen` is what was looked
    /// at, `directions` are those with data in it.
    pub(crate) fn is_missed(&self, seen: &str, directions: u64, causes: &[CauseIn]) -> bool {
        if directions == 0 {
            anstream::eprintln!("taut: {seen}: there is no data in it, so {} can't be told", self.cause);
        }
        let mut missed = false;
        for cause in causes.iter().filter(|cause| cause.cause == self.cause) {
            let (percent, most) = (cause.largest_share * 100.0, self.share * 100.0);
            if cause.found > 0 && cause.largest_share > self.share {
                anstream::eprintln!(
                    "taut: {seen}: {} has {percent:.2} % of a direction, at most {most} % is allowed",
                    self.cause
                );
                missed = true;
            } else if cause.unknown > 0 {
                anstream::eprintln!(
                    "taut: {seen}: whether {} is there can't be told of {} of the directions",
                    self.cause,
                    cause.unknown
                );
            }
        }
        missed
    }
}
