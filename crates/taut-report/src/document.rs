use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use taut_explain::Finding;
use taut_measure::recording::{
    AirChangeRow, AirRow, CheckRow, CrowdRow, EchoRow, Ended, FORMAT_VERSION, FloorRow, HostFacts, PaceRow, Recording,
    StreamRow, TuneRow,
};

/// A recording with what was found in it: the one JSON object of every `--json`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Document {
    /// All that was measured.
    #[serde(flatten)]
    pub recording: Recording,
    /// What holds the data back, worst first.
    pub findings: Vec<Finding>,
}

/// Why a document could not be read. Every one names the file; what is wrong with it is for whoever made the file to mend.
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
    /// Reads a document from a file.
    ///
    /// # Errors
    ///
    /// When the file can't be read, is not JSON, is of a newer format, or lacks something.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let text = fs::read_to_string(path).map_err(|error| Error::Read { path: path.to_owned(), error })?;
        let value: Value =
            serde_json::from_str(&text).map_err(|error| Error::NotJson { path: path.to_owned(), error })?;
        // Before the shape: a newer format may well have another one.
        if let Some(found) = value.get("format_version").and_then(Value::as_u64).filter(|&v| v > FORMAT_VERSION.into())
        {
            return Err(Error::Newer { path: path.to_owned(), found });
        }
        Self::deserialize(&value).map_err(|error| {
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
    match row.get("workload").and_then(Value::as_str) {
        Some("echo") => misfit::<EchoRow>(row),
        Some("pace") => misfit::<PaceRow>(row),
        Some("stream") => misfit::<StreamRow>(row),
        Some("crowd") => misfit::<CrowdRow>(row),
        Some("tune") => misfit::<TuneRow>(row),
        Some("air") => misfit::<AirRow>(row),
        Some("air_change") => misfit::<AirChangeRow>(row),
        Some("floor") => misfit::<FloorRow>(row),
        Some("check") => misfit::<CheckRow>(row),
        Some(other) => Some(Misfit { at: "workload".to_owned(), message: format!("`{other}` is not known") }),
        None => Some(Misfit { at: "workload".to_owned(), message: "is missing".to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
            broken(|value| value["format_version"] = json!(2)),
            "r.json has format version 2, but this Tautline reads up to 1: use a newer one"
        );
        let missing = |path: &str, key: &str| {
            broken(|value| {
                value.pointer_mut(path).unwrap().as_object_mut().unwrap().remove(key);
            })
        };
        let prefix = "r.json is not a recording of Tautline: ";
        assert_eq!(missing("", "findings"), format!("{prefix}findings: is missing"));
        assert_eq!(missing("/host", "kernel"), format!("{prefix}host: missing field `kernel`"));
        assert_eq!(missing("/results/0", "sent"), format!("{prefix}results[0]: missing field `sent`"));
        assert_eq!(missing("/results/0/rtt_ns", "p50"), format!("{prefix}results[0].rtt_ns: missing field `p50`"));
        assert_eq!(missing("/results/0", "workload"), format!("{prefix}results[0].workload: is missing"));
        assert_eq!(missing("/findings/0", "share"), format!("{prefix}findings[0]: missing field `share`"));
        assert_eq!(
            broken(|value| value["results"][1]["workload"] = json!("swim")),
            format!("{prefix}results[1].workload: `swim` is not known")
        );
    }
}
