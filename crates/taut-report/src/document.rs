use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use taut_explain::Finding;
use taut_record::{Ended, FORMAT_VERSION, HostFacts, Observed, Recording, Row};

/// A recording with what was found in it: the one JSON object of every `--json`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Document {
    /// All that was measured.
    #[serde(flatten)]
    pub recording: Recording,
    /// What holds the data back, worst first.
    pub findings: Vec<Finding>,
    /// Who made the findings, where that was not the Tautline that measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained_again: Option<ExplainedAgain>,
}

/// That the events of a recording were looked at again.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct ExplainedAgain {
    /// The version of Tautline that did.
    pub by: String,
    /// Rounds whose events it looked at.
    pub rounds: u64,
    /// Parts of the run whose events were not all kept: the findings in these are those of the recording.
    pub not_again: u64,
}

/// Why a document could not be read. Every one names the file; what is wrong with it is for whoever
/// made the file to mend.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file can't be read.
    #[error("cannot read {path}: {error}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The file is not JSON.
    #[error("{path} is not JSON: {error}", path = .path.display())]
    NotJson {
        /// The file.
        path: PathBuf,
        /// Where it stops being JSON.
        error: serde_json::Error,
    },
    /// The file comes from a newer Tautline.
    #[error("{path} has format version {found}, but this Tautline reads up to {FORMAT_VERSION}: use a newer one", path = .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format version.
        found: u64,
    },
    /// The file is what another command printed, which records no measurement.
    #[error(
        "{path} is what `taut {command}` printed, and no recording of a measurement: that command renders it itself",
        path = .path.display()
    )]
    OtherCommand {
        /// The file.
        path: PathBuf,
        /// The command's name.
        command: String,
    },
    /// The file is JSON, but not a recording.
    #[error("{path} is not a recording of Tautline: {at}: {message}", path = .path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// Where in the document, such as `results[3].rtt_ns`.
        at: String,
        /// What is wrong there.
        message: String,
    },
}

impl Document {
    /// A recording with its findings, whatever order they were found in.
    pub fn new(recording: Recording, findings: Vec<Finding>) -> Self {
        let mut document = Self { recording, findings, explained_again: None };
        sort_worst_first(&mut document.findings);
        document
    }

    /// Reads a document from a file.
    ///
    /// # Errors
    ///
    /// When the file can't be read, is not JSON, is of a newer format, or lacks something.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let value = value_of(path)?;
        let read = Self::deserialize(&value).map(|document| {
            let explained_again = document.explained_again;
            Self { explained_again, ..Self::new(document.recording, document.findings) }
        });
        read.map_err(|error| {
            if let Some(command) = other_command(&value) {
                return Error::OtherCommand { path: path.to_owned(), command: command.to_owned() };
            }
            let (at, message) = locate(&value).unwrap_or_else(|| ("the document".to_owned(), error.to_string()));
            Error::Shape { path: path.to_owned(), at, message }
        })
    }

    /// The document as one JSON object, indented, with a newline at the end.
    pub fn to_json(&self) -> String {
        // Keys are strings and nothing else can fail, so an error would be a bug of ours.
        let mut json = serde_json::to_string_pretty(self).expect("a document is always JSON");
        json.push('\n');
        json
    }

    /// JSON Schema of the document.
    pub fn schema() -> Value {
        schemars::schema_for!(Self).to_value()
    }
}

/// The JSON value in a file, of a format that we know.
pub(crate) fn value_of(path: &Path) -> Result<Value, Error> {
    let text = read(path).map_err(|error| Error::Read { path: path.to_owned(), error })?;
    let value: Value = serde_json::from_str(&text).map_err(|error| Error::NotJson { path: path.to_owned(), error })?;
    // Before the shape: a newer format may well have another one.
    if let Some(found) = value.get("format_version").and_then(Value::as_u64).filter(|&v| v > FORMAT_VERSION.into()) {
        return Err(Error::Newer { path: path.to_owned(), found });
    }
    Ok(value)
}

/// No recording is nearly as long, in bytes: what keeps all its events has some 10 MB.
const LONGEST: u64 = 256 << 20;

/// A file's text, of a device without an end no more than a recording may have.
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(LONGEST + 1).read_to_string(&mut text)?;
    let too_long = || io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {LONGEST} bytes"));
    if text.len() as u64 > LONGEST { Err(too_long()) } else { Ok(text) }
}

/// Puts the worst first: paths by what their findings cost all messages together, then paths of
/// which all is proven by a remedy, by what it gained. The findings of one path stay in the order of
/// its detectors, who name what binds before what it hides; their shares are of different things.
fn sort_worst_first(findings: &mut [Finding]) {
    let mut paths: Vec<(String, (bool, f64))> = Vec::new();
    for finding in &*findings {
        let weight = weight(finding);
        match paths.iter_mut().find(|(on, _)| *on == finding.on) {
            Some((_, worst)) if worst.0 == weight.0 => worst.1 = worst.1.max(weight.1),
            Some((_, worst)) if worst.0 => *worst = weight,
            Some(_) => {}
            None => paths.push((finding.on.clone(), weight)),
        }
    }
    paths.sort_by(|(_, a), (_, b)| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
    findings.sort_by_key(|finding| paths.iter().position(|(on, _)| *on == finding.on));
}

/// Whether a finding is proven, and how bad it is beside others of that kind.
fn weight(finding: &Finding) -> (bool, f64) {
    match &finding.proof {
        None => (false, finding.share * finding.cost_ns as f64),
        Some(proof) => (true, proof.after_bps / proof.before_bps.max(1.0)),
    }
}

/// The command that printed this, if it is one that records no measurement.
fn other_command(value: &Value) -> Option<&str> {
    let command = value.get("command")?.as_str()?;
    ["check", "explain", "mesh", "mesh check", "sockets", "trace", "watch"].contains(&command).then_some(command)
}

/// Finds the place that does not fit. Flattened and tagged parts lose their path in serde, so each is tried by itself.
fn locate(value: &Value) -> Option<(String, String)> {
    let Some(object) = value.as_object() else {
        return Some(("the document".to_owned(), "expected an object".to_owned()));
    };
    let whole: [(&str, Check); 9] = [
        ("format_version", misfit::<u32>),
        ("command", misfit::<String>),
        ("command_line", misfit::<String>),
        ("started_unix_s", misfit::<u64>),
        ("duration_ns", misfit::<u64>),
        ("ended", misfit::<Ended>),
        ("host", misfit::<HostFacts>),
        ("findings", misfit::<Vec<Finding>>),
        ("results", misfit::<Vec<Value>>),
    ];
    for (key, check) in whole {
        let Some(part) = object.get(key) else {
            return Some((key.to_owned(), "is missing".to_owned()));
        };
        if let Some(misfit) = check(part) {
            return Some(misfit.under(key));
        }
    }
    // Absent from format 1.
    let later: [(&str, Check); 2] =
        [("observed", misfit::<Vec<Observed>>), ("explained_again", misfit::<Option<ExplainedAgain>>)];
    for (key, check) in later {
        if let Some(misfit) = object.get(key).and_then(check) {
            return Some(misfit.under(key));
        }
    }
    let rows = object.get("results")?.as_array()?;
    rows.iter().enumerate().find_map(|(i, row)| Some(row_misfit(row)?.under(&format!("results[{i}]"))))
}

type Check = fn(&Value) -> Option<Misfit>;

struct Misfit {
    at: String,
    message: String,
}

impl Misfit {
    fn under(self, parent: &str) -> (String, String) {
        let dot = if self.at.starts_with('[') || self.at.is_empty() { "" } else { "." };
        (format!("{parent}{dot}{}", self.at), self.message)
    }
}

fn misfit<T: DeserializeOwned>(value: &Value) -> Option<Misfit> {
    let error = serde_path_to_error::deserialize::<_, T>(value.clone()).err()?;
    let at = error.path().to_string();
    Some(Misfit { at: if at == "." { String::new() } else { at }, message: error.into_inner().to_string() })
}

fn row_misfit(row: &Value) -> Option<Misfit> {
    let of_workload = |message: String| Some(Misfit { at: "workload".to_owned(), message });
    let Some(kind) = row.get("workload").and_then(Value::as_str) else {
        return of_workload("is missing".to_owned());
    };
    let mut track = serde_path_to_error::Track::new();
    let error = match Row::of_kind(kind, serde_path_to_error::Deserializer::new(row.clone(), &mut track)) {
        None => return of_workload(format!("`{kind}` is not known")),
        Some(read) => read.err()?,
    };
    let at = track.path().to_string();
    Some(Misfit { at: if at == "." { String::new() } else { at }, message: error.to_string() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use taut_explain::Proof;

    use super::*;
    use crate::synthetic;

    fn read(text: &str) -> Result<Document, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        fs::write(&path, text).unwrap();
        Document::read(&path).map_err(|error| error.to_string().replace(&path.display().to_string(), "r.json"))
    }

    fn broken(edit: impl FnOnce(&mut Value)) -> String {
        let mut value: Value = serde_json::from_str(&synthetic::survey().to_json()).unwrap();
        edit(&mut value);
        read(&value.to_string()).unwrap_err()
    }

    #[test]
    fn every_kind_of_row_is_known_and_says_what_it_lacks() {
        let rows = synthetic::survey().recording.results;
        for kind in Row::KINDS {
            let misfit = row_misfit(&json!({"workload": kind})).unwrap();
            assert!(misfit.message.starts_with("missing field"), "{kind}: {}: {}", misfit.at, misfit.message);
            let written =
                rows.iter().map(|row| serde_json::to_value(row).unwrap()).find(|row| row["workload"] == **kind);
            assert!(row_misfit(&written.unwrap_or_else(|| panic!("no {kind} in the survey"))).is_none(), "{kind}");
        }
    }

    #[test]
    fn findings_stand_worst_first() {
        let finding = |on: &str, share, cost_ns, gain: Option<f64>| Finding {
            on: on.to_owned(),
            share,
            cost_ns,
            proof: gain.map(|gain| Proof {
                change: "x".to_owned(),
                command: "x".to_owned(),
                before_bps: 1e6,
                after_bps: 1e6 * gain,
            }),
            ..synthetic::survey().findings.remove(0)
        };
        let all = vec![
            finding("a", 1.0, 5, Some(1.5)),
            finding("b", 0.5, 22_000_000, None),
            finding("c", 1.0, 112_000, None),
            // What binds that path, and what would come to light then, which is a larger share of something else.
            finding("c", 1.0, 113_000, None),
            finding("d", 1.0, 7, Some(4.0)),
            finding("e", 1.0, 44_000_000, None),
        ];
        let document = Document::new(synthetic::survey().recording, all);
        let costs: Vec<u64> = document.findings.iter().map(|finding| finding.cost_ns).collect();
        assert_eq!(costs, [44_000_000, 22_000_000, 112_000, 113_000, 7, 5]);
        // An older file has them in the order in which they were found.
        let mut value: Value = serde_json::from_str(&document.to_json()).unwrap();
        value["findings"].as_array_mut().unwrap().rotate_left(2);
        let costs: Vec<u64> =
            read(&value.to_string()).unwrap().findings.iter().map(|finding| finding.cost_ns).collect();
        assert_eq!(costs, [44_000_000, 22_000_000, 112_000, 113_000, 7, 5]);
    }

    #[test]
    fn what_is_written_can_be_read() {
        let json = synthetic::survey().to_json();
        assert!(json.ends_with("}\n"));
        assert_eq!(read(&json).unwrap().to_json(), json);
    }

    #[test]
    fn the_schema_accepts_what_is_written() {
        let validator = jsonschema::validator_for(&Document::schema()).unwrap();
        let value: Value = serde_json::from_str(&synthetic::survey().to_json()).unwrap();
        let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
        assert!(!validator.is_valid(&json!({"format_version": 1})));
    }

    #[test]
    fn errors_say_what_is_wrong_and_where() {
        assert!(Document::read("no/such/file").unwrap_err().to_string().starts_with("cannot read no/such/file: "));
        assert!(read("{").unwrap_err().starts_with("r.json is not JSON: EOF"));
        assert!(read("[]").unwrap_err().ends_with("the document: expected an object"));
        assert_eq!(
            broken(|value| value["format_version"] = json!(FORMAT_VERSION + 1)),
            "r.json has format version 4, but this Tautline reads up to 3: use a newer one"
        );
        let missing = |path: &str, key: &str| {
            broken(|value| {
                value.pointer_mut(path).unwrap().as_object_mut().unwrap().remove(key);
            })
        };
        assert_eq!(
            read(r#"{"format_version": 2, "command": "trace", "span_ns": 1}"#).unwrap_err(),
            "r.json is what `taut trace` printed, and no recording of a measurement: that command renders it itself"
        );
        let prefix = "r.json is not a recording of Tautline: ";
        assert_eq!(missing("", "findings"), format!("{prefix}findings: is missing"));
        assert_eq!(missing("/host", "kernel"), format!("{prefix}host: missing field `kernel`"));
        assert_eq!(missing("/results/0", "sent"), format!("{prefix}results[0]: missing field `sent`"));
        assert_eq!(missing("/results/0/rtt_ns", "p50"), format!("{prefix}results[0].rtt_ns: missing field `p50`"));
        assert_eq!(missing("/results/0", "workload"), format!("{prefix}results[0].workload: is missing"));
        assert_eq!(missing("/findings/0", "share"), format!("{prefix}findings[0]: missing field `share`"));
        assert_eq!(
            broken(|value| value["observed"] = json!([{"row": -1}])),
            format!("{prefix}observed[0].row: invalid value: integer `-1`, expected usize")
        );
        assert_eq!(
            broken(|value| value["results"][1]["workload"] = json!("swim")),
            format!("{prefix}results[1].workload: `swim` is not known")
        );
    }
}
