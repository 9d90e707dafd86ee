use taut_link::{Error, Fault, Result, affinity};

use super::plan::TunePlan;
use super::setting::{self, Setting};
use super::trial::{self, Figures, Trial};
use crate::interrupt::Interrupt;
use crate::rounds::turns;
use crate::verdict::{confirm, stands_out};
use taut_record::stats::{Losses, MOST_FALSE, Quantile, Ratio, losses_differ_at, median};
use taut_record::{Ended, TuneRow, Verdict};

/// A setting with what it gave, by round.
struct Candidate {
    setting: Setting,
    screening: Vec<Figures>,
    /// Fresh rounds, for those that stood out; the base has them too.
    again: Vec<Figures>,
    why_not: Option<String>,
}

/// The base and all that is tried.
pub(super) struct Candidates {
    /// The base is the first.
    all: Vec<Candidate>,
    /// How many are held against the base.
    others: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Screening,
    Again,
}

impl Candidate {
    fn new(setting: Setting, why_not: Option<String>) -> Self {
        Self { setting, screening: Vec::new(), again: Vec::new(), why_not }
    }

    const fn rounds(&mut self, stage: Stage) -> &mut Vec<Figures> {
        match stage {
            Stage::Screening => &mut self.screening,
            Stage::Again => &mut self.again,
        }
    }
}

impl Candidates {
    /// All settings; one that is in force already in a base with these options is not tried.
    pub(super) fn new(plan: &TunePlan, in_force: &[String]) -> Self {
        let cores = affinity::allowed_cores();
        let mut all = vec![Candidate::new(setting::base(plan), None)];
        all.extend(setting::all(plan).into_iter().map(|setting| {
            let why_not = setting.is_in_force(plan, in_force, &cores);
            Candidate::new(setting, why_not)
        }));
        let others = all.iter().skip(1).filter(|one| one.why_not.is_none()).count();
        Self { all, others }
    }

    /// Screens all of them, and measures again what stood out.
    pub(super) fn measure(
        &mut self,
        plan: &TunePlan,
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Ended {
        let everyone: Vec<usize> = (0..self.all.len()).filter(|&index| self.all[index].why_not.is_none()).collect();
        let ended = self.rounds(plan, Stage::Screening, &everyone, interrupt, &mut |done, of| progress(done, 2 * of));
        if ended != Ended::Complete {
            return ended;
        }
        let mut again: Vec<usize> =
            (1..self.all.len()).filter(|&index| stands_out(self.ratio(index, Stage::Screening))).collect();
        if again.is_empty() {
            return Ended::Complete;
        }
        again.insert(0, 0);
        self.rounds(plan, Stage::Again, &again, interrupt, &mut |done, of| progress(of + done, 2 * of))
    }

    fn rounds(
        &mut self,
        plan: &TunePlan,
        stage: Stage,
        who: &[usize],
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Ended {
        for round in 0..plan.rounds {
            for (step, turn) in turns(round, who.len()).enumerate() {
                progress(round * who.len() + step, plan.rounds * who.len());
                if interrupt.is_set() {
                    return Ended::Interrupted;
                }
                let index = who[turn];
                if self.all[index].why_not.is_some() {
                    continue;
                }
                match whole(trial::run(plan, &self.all[index].setting, false, interrupt)) {
                    Ok(figures) => self.all[index].rounds(stage).push(figures),
                    Err(Cut::Interrupted) => return Ended::Interrupted,
                    // A setting that the kernel or the peer refuses is a result too. Whether the
                    // peer is gone the base tells.
                    Err(Cut::Failed { why, by_peer }) => {
                        let why = format!("{why} (round {}, {})", round + 1, self.all[index].setting.name);
                        let base = &self.all[0].setting;
                        if index == 0 || by_peer && whole(trial::run(plan, base, false, interrupt)).is_err() {
                            return Ended::PeerGone(why);
                        }
                        self.all[index].why_not = Some(why);
                    }
                }
            }
        }
        Ended::Complete
    }

    /// The median against the base's of the same rounds.
    fn ratio(&self, index: usize, stage: Stage) -> Option<Ratio> {
        let p50 = |one: &Candidate| -> Vec<Option<Quantile>> {
            let rounds = if stage == Stage::Screening { &one.screening } else { &one.again };
            rounds.iter().map(|round| round.p50).collect()
        };
        Ratio::of_two_stages(&p50(&self.all[index]), &p50(&self.all[0]), self.others)
    }

    pub(super) fn rows(&self, plan: &TunePlan) -> Vec<TuneRow> {
        // One of the trials that are held against each other is enough to make it another comparison.
        let mut trials = self.all.iter().flat_map(|one| one.screening.iter().chain(&one.again));
        let placement = plan.spot.told(!trials.any(|figures| figures.moved));
        let rows = (0..self.all.len()).map(|index| self.row(plan, index));
        rows.map(|row| TuneRow { placement: Some(placement.clone()), ..row }).collect()
    }

    fn row(&self, plan: &TunePlan, index: usize) -> TuneRow {
        let (one, base) = (&self.all[index], &self.all[0]);
        let screening = self.ratio(index, Stage::Screening);
        let again = self.ratio(index, Stage::Again).filter(|_| index > 0);
        // Losses may leave the fresh rounds without a ratio.
        let is_fresh = again.is_some() || index > 0 && one.again.len() >= plan.rounds;
        let of = |candidate: &Candidate| {
            if is_fresh { candidate.again.clone() } else { candidate.screening.clone() }
        };
        let (mine, theirs) = (of(one), of(base));
        let at = |rounds: &[Figures], figure: fn(&Figures) -> Option<Quantile>| -> Vec<Option<Quantile>> {
            rounds.iter().map(figure).collect()
        };
        let (p50, p99) = (|round: &Figures| round.p50, |round: &Figures| round.p99);
        let losses = |rounds: &[Figures]| Losses::sum(rounds.iter().map(|round| round.losses));
        let compared = screening.zip(again).map(|(screening, again)| confirm(screening, again, self.others));
        let (verdict, rounds_needed) = match compared {
            _ if one.why_not.is_some() => (Verdict::NotAvailable, None),
            _ if losses_differ_at(losses(&mine), losses(&theirs), MOST_FALSE / self.others.max(1) as f64).is_some() => {
                (Verdict::LossesDiffer, None)
            }
            Some(compared) => (compared.verdict, compared.rounds_needed),
            // It stood out, and nobody has looked again.
            None if index > 0 && !is_fresh && stands_out(screening) => (Verdict::TooFewRounds, Some(plan.rounds)),
            None => (Verdict::CannotTellApart, None),
        };
        let ratio = if is_fresh { again } else { screening }.filter(|_| one.why_not.is_none());
        let lost = losses(&mine).lost + losses(&theirs).lost;
        let is_open = verdict == Verdict::CannotTellApart && ratio.is_none() && index > 0;
        let lost_too_many = (is_open && lost > 0).then(|| LOST_TOO_MANY.to_owned());
        TuneRow {
            endpoint: plan.endpoint.to_string(),
            command: plan.command.clone(),
            measured: plan.workload.name().to_owned(),
            setting: one.setting.name.clone(),
            place: one.setting.place.to_owned(),
            p50_ns: middle(&at(&mine, p50)),
            p99_ns: if mine.iter().all(|round| round.p99.is_some()) { middle(&at(&mine, p99)) } else { None },
            lost_share: losses(&mine).share(),
            p50_ratio: ratio.map(|ratio| ratio.middle),
            p50_ratio_ci: ratio.map(|ratio| ratio.interval),
            p50_ratio_level: ratio.map(|ratio| ratio.level),
            p99_ratio: Ratio::across(&at(&mine, p99), &at(&theirs, p99)).map(|ratio| ratio.middle),
            screening_ratio: screening.filter(|_| is_fresh).map(|ratio| ratio.middle),
            base_p50_ns: middle(&at(&theirs, p50)).filter(|_| index > 0),
            verdict,
            rounds_needed,
            why_not: one.why_not.clone().or(lost_too_many),
            apply: one.setting.apply.clone(),
            throughput_bps: None,
            options: Vec::new(),
            placement: None,
        }
    }
}

/// Why two can't be told apart whose times were compared in vain.
const LOST_TOO_MANY: &str = "too many messages were lost to compare the times";

/// Why a trial gave no figures.
enum Cut {
    Interrupted,
    Failed { why: String, by_peer: bool },
}

/// The figures of a trial, if it came to its end.
fn whole(trial: Result<Trial>) -> std::result::Result<Figures, Cut> {
    match trial {
        Ok(Trial { ended: Ended::Complete, figures, .. }) => Ok(figures),
        Ok(Trial { ended: Ended::Interrupted, .. }) => Err(Cut::Interrupted),
        Ok(Trial { ended: Ended::PeerGone(why) | Ended::Failed(why), .. }) => Err(Cut::Failed { why, by_peer: true }),
        Err(error) => {
            let by_peer = error.fault() == Fault::Peer && !matches!(error, Error::Refused { .. });
            Err(Cut::Failed { why: error.to_string(), by_peer })
        }
    }
}

/// The median over the rounds.
fn middle(figures: &[Option<Quantile>]) -> Option<u64> {
    let figures: Vec<f64> = figures.iter().flatten().map(|figure| figure.as_f64()).collect();
    median(&figures).filter(|ns| ns.is_finite()).map(|ns| ns as u64)
}

#[cfg(test)]
mod tests {
    use taut_link::wire::AckPolicy;
    use taut_time::Duration;

    use super::*;
    use crate::placement::Spot;
    use crate::tune::TuneWorkload;
    use taut_record::PlacementKind;

    fn plan() -> TunePlan {
        TunePlan {
            endpoint: "udp://127.0.0.1:9".parse().unwrap(),
            workload: TuneWorkload::Echo { bytes: 32 },
            acks: AckPolicy::System,
            plain: false,
            spot: Spot::default(),
            rounds: 8,
            time: Duration::from_millis(100),
            command: String::new(),
        }
    }

    /// 20 messages of that median; 11 lost of them leave none.
    fn figures(p50_ns: u64, lost: u64) -> Figures {
        let p50 = Some(if lost > 10 { Quantile::Lost } else { Quantile::Time(p50_ns) });
        Figures { p50, losses: Losses { lost, messages: 20 }, ..Figures::default() }
    }

    #[test]
    fn a_peer_that_moved_in_one_trial_makes_no_placement_of_any_row() {
        let plan = TunePlan { spot: Spot { kind: PlacementKind::TwoCores, ..Spot::free(Some(1)) }, ..plan() };
        let mut candidates = Candidates::new(&plan, &[]);
        assert!(!candidates.all.iter().any(|one| one.setting.name.starts_with("core")));
        candidates.all[0].screening.push(figures(1000, 0));
        let kind = |candidates: &Candidates| candidates.rows(&plan)[1].placement.clone().unwrap().kind;
        assert_eq!(kind(&candidates), PlacementKind::TwoCores);
        candidates.all[0].screening.push(Figures { moved: true, ..figures(1000, 0) });
        assert_eq!(kind(&candidates), PlacementKind::Free);
    }

    #[test]
    fn fresh_rounds_that_lost_their_median_say_so() {
        let plan = plan();
        let mut candidates = Candidates::new(&plan, &[]);
        candidates.all.truncate(2);
        candidates.others = 1;
        for round in 0..8 {
            candidates.all[0].screening.push(figures(1000 + round, 0));
            candidates.all[1].screening.push(figures(500 + round, 0));
        }
        // Nobody has looked again.
        let row = candidates.row(&plan, 1);
        assert_eq!((row.verdict, row.rounds_needed, row.why_not), (Verdict::TooFewRounds, Some(8), None));
        // Each loses as much as the other, in other rounds: the ratio has an end at zero and one at infinity.
        for round in 0..8 {
            candidates.all[0].again.push(figures(1000 + round, if round % 2 == 0 { 12 } else { 0 }));
            candidates.all[1].again.push(figures(500 + round, if round % 2 == 1 { 12 } else { 0 }));
        }
        let row = candidates.row(&plan, 1);
        assert_eq!((row.verdict, row.rounds_needed), (Verdict::CannotTellApart, None));
        assert_eq!(row.why_not.as_deref(), Some(LOST_TOO_MANY));
        assert!(row.p50_ratio.is_none() && row.screening_ratio.is_some() && row.lost_share == 0.3, "{row:?}");
    }
}
