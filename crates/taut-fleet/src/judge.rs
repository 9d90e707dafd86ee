//! Which pairs are beyond their thresholds.

use crate::figure::Figure;
use crate::outcome::{Between, HostOutcome, MeshOutcome, Miss, PairOutcome, Usual};
use crate::plan::Plan;
use crate::warn::Warn;

/// Pairs that it takes to say what is usual.
const LEAST_PAIRS: usize = 4;

/// Finds what is usual between hosts of one rack and between racks, and which pairs are beyond their thresholds.
/// The works of the outcome are those of the plan. What was judged before is judged anew.
pub fn judge(plan: &Plan, outcome: &mut MeshOutcome) {
    let hosts = &outcome.hosts;
    for (work, of_plan) in outcome.works.iter_mut().zip(&plan.work) {
        let mut figures = vec![work.figure];
        for term in of_plan.warn.iter().flat_map(Warn::terms) {
            if !figures.contains(&term.figure) {
                figures.push(term.figure);
            }
        }
        work.usual = figures.iter().flat_map(|&figure| usual(hosts, &work.pairs, figure)).collect();
        for pair in &mut work.pairs {
            (pair.misses, pair.times_usual) = (Vec::new(), None);
            let Some(measured) = &pair.measured else { continue };
            let between = between(hosts, pair.near, pair.far);
            let usual = |figure: Figure| {
                let alike = |one: &&Usual| one.between == between && one.figure == figure;
                work.usual.iter().find(alike).map(|one| one.value)
            };
            let finite = |value: f64| Some(value).filter(|value| value.is_finite());
            let times = |usual: f64| Some(work.figure.of(measured)? / usual);
            pair.times_usual = usual(work.figure).filter(|usual| *usual > 0.0).and_then(times).and_then(finite);
            let holding = of_plan.warn.as_ref().map(|warn| warn.holding(measured, &usual)).unwrap_or_default();
            pair.misses = holding
                .into_iter()
                .map(|(threshold, term)| Miss {
                    threshold,
                    figure: term.figure,
                    value: term.figure.of(measured).and_then(finite),
                    usual: usual(term.figure),
                })
                .collect();
        }
    }
}

fn between(hosts: &[HostOutcome], near: usize, far: usize) -> Between {
    match (hosts.get(near).and_then(|host| host.rack.as_ref()), hosts.get(far).and_then(|host| host.rack.as_ref())) {
        (Some(near), Some(far)) if near == far => Between::OneRack,
        (Some(_), Some(_)) => Between::Racks,
        _ => Between::Hosts,
    }
}

/// The median of pairs that are alike, where there are enough of them and it is a number.
fn usual(hosts: &[HostOutcome], pairs: &[PairOutcome], figure: Figure) -> Vec<Usual> {
    let of = |between: Between| {
        let alike = pairs.iter().filter(|pair| self::between(hosts, pair.near, pair.far) == between);
        let mut values: Vec<f64> = alike.filter_map(|pair| figure.of(pair.measured.as_ref()?)).collect();
        values.sort_by(f64::total_cmp);
        let value = *values.get(values.len().checked_sub(1)? / 2)?;
        (values.len() >= LEAST_PAIRS && value.is_finite()).then_some(Usual {
            between,
            figure,
            value,
            pairs: values.len(),
        })
    };
    [Between::Hosts, Between::OneRack, Between::Racks].into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use taut_record::stats::Distribution;

    use super::*;
    use crate::figure::Measured;
    use crate::outcome::{Reached, WorkOutcome};

    fn pair(near: usize, far: usize, us: u64, lost: u64) -> PairOutcome {
        let mut times: Distribution = (0..100 - lost).map(|_| std::time::Duration::from_micros(us)).collect();
        times.record_lost(lost);
        PairOutcome {
            near,
            far,
            begin_ns: Some(0),
            end_ns: Some(1),
            reached: Reached::Measured,
            measured: Some(Measured { rtt_ns: times.summary(), sent: 100, lost, throughput_bps: None }),
            misses: Vec::new(),
            times_usual: None,
            explained: None,
            failures: None,
        }
    }

    fn judged(warn: &str, racks: [Option<&str>; 6], pairs: Vec<PairOutcome>) -> WorkOutcome {
        let names = "\"a\", \"b\", \"c\", \"d\", \"e\", \"f\"";
        let text = format!("[mesh]\nhosts = [{names}]\n[[mesh.work]]\necho = \"udp\"\nwarn = \"{warn}\"\n");
        let plan = Plan::parse(&text).unwrap();
        let host = |(host, rack): (&crate::host::Host, Option<&str>)| HostOutcome {
            name: host.name.clone(),
            rack: rack.map(str::to_owned),
            ..HostOutcome::default()
        };
        let work = WorkOutcome {
            work: "echo".to_owned(),
            transport: "udp".to_owned(),
            warn: Some(warn.to_owned()),
            alone_on_host: false,
            alone_in_rack: false,
            figure: plan.work[0].figure(),
            usual: Vec::new(),
            pairs,
        };
        let hosts = plan.hosts.iter().zip(racks).map(host).collect();
        let mut outcome = MeshOutcome { hosts, works: vec![work], results: None };
        judge(&plan, &mut outcome);
        outcome.works.remove(0)
    }

    #[test]
    fn what_is_usual_is_asked_of_pairs_alike() {
        let (r, s) = (Some("r"), Some("s"));
        let pairs = vec![
            pair(0, 1, 50, 0),
            pair(0, 2, 52, 0),
            pair(1, 2, 400, 0),
            pair(3, 4, 48, 0),
            // Between racks that is usual.
            pair(0, 3, 400, 0),
            pair(0, 4, 410, 0),
            pair(1, 3, 390, 0),
            pair(1, 4, 395, 3),
            pair(2, 5, 2000, 0),
        ];
        let work = judged("p50 > 3 * usual or lost > 0", [r, r, r, s, s, s], pairs.clone());
        let named: Vec<(usize, usize)> =
            work.worst().iter().map(|&number| (work.pairs[number].near, work.pairs[number].far)).collect();
        assert_eq!(named, [(1, 4), (1, 2), (2, 5)]);
        assert_eq!(work.pairs[2].misses[0].threshold, "p50 > 3 * usual");
        assert_eq!((work.pairs[7].misses[0].value, work.pairs[7].misses[0].figure), (Some(3.0), Figure::Lost));
        // Without racks all are alike, and only one is far from the rest.
        let work = judged("p50 > 4 * usual", [None; 6], pairs);
        assert_eq!(work.worst(), [8]);
    }

    #[test]
    fn what_is_judged_again_keeps_nothing_of_what_was() {
        let text = "[mesh]\nhosts = [\"a\", \"b\"]\n[[mesh.work]]\necho = \"udp\"\nwarn = \"lost > 0\"\n";
        let plan = Plan::parse(text).unwrap();
        let works = crate::blank::works(&plan, &[crate::pairs::Pair { near: 0, far: 1 }], &|_| String::new());
        let mut outcome = MeshOutcome { hosts: vec![HostOutcome::default(); 2], works, results: None };
        outcome.works[0].pairs[0] = pair(0, 1, 50, 3);
        judge(&plan, &mut outcome);
        assert!(outcome.has_misses());
        // A later attempt failed: there is no figure to be beyond anything.
        let pair = &mut outcome.works[0].pairs[0];
        (pair.reached, pair.measured) = (Reached::Failed(String::new()), None);
        judge(&plan, &mut outcome);
        assert!(!outcome.has_misses());
    }

    #[test]
    fn of_few_pairs_nothing_is_usual() {
        let work =
            judged("p50 > 3 * usual", [None; 6], vec![pair(0, 1, 50, 0), pair(0, 2, 50, 0), pair(1, 2, 9000, 0)]);
        assert!(work.usual.is_empty() && work.worst().is_empty());
    }
}
