//! The bill of materials: each crate that is in the program for a machine, by version, licence and checksum, as
//! CycloneDX 1.5.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::machine::Machine;
use crate::shell;

/// Writes it beside the archive. Equal sources give equal bytes: it has no serial number and no time.
pub(super) fn write(machine: Machine, package: &str, directory: &Path) -> Result<PathBuf> {
    let mut cargo = shell::cargo();
    cargo.args(["metadata", "--locked", "--format-version=1", "--filter-platform", machine.triple()]);
    let metadata: Value = serde_json::from_str(&shell::output(&mut cargo)?).context("cargo metadata")?;
    let lock = fs::read_to_string(shell::root().join("Cargo.lock"))?;
    let file = directory.join(format!("{}.cdx.json", machine.archive()));
    let bill = bill(&metadata, &checksums(&lock), package)?;
    fs::write(&file, format!("{}\n", serde_json::to_string_pretty(&bill)?))?;
    Ok(file)
}

fn bill(metadata: &Value, checksums: &BTreeMap<(String, String), String>, package: &str) -> Result<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let needs: BTreeMap<String, Vec<String>> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| {
            (
                text(&node["id"]),
                list(&node["deps"]).iter().filter(|need| is_built(need)).map(|need| text(&need["pkg"])).collect(),
            )
        })
        .collect();
    let ours = list(&metadata["workspace_members"]).iter().map(text).collect::<BTreeSet<_>>();
    let root = ours.iter().find(|id| packages.get(*id).is_some_and(|of| of["name"] == package));
    let root = root.with_context(|| format!("there is no package {package}"))?;
    let mut reached = BTreeSet::new();
    let mut next = vec![root.clone()];
    while let Some(id) = next.pop() {
        if reached.insert(id.clone()) {
            next.extend(needs.get(&id).into_iter().flatten().cloned());
        }
    }
    let component = |id: &String| {
        let of = packages.get(id).with_context(|| format!("cargo metadata has no package {id}"))?;
        let (name, version) = (text(&of["name"]), text(&of["version"]));
        let mut component = json!({
            "type": if id == root { "application" } else { "library" },
            "bom-ref": format!("{name}@{version}"),
            "name": name,
            "version": version,
        });
        if let Some(licence) = of["license"].as_str() {
            component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
        }
        if !ours.contains(id) {
            component["purl"] = format!("pkg:cargo/{name}@{version}").into();
        }
        if let Some(sum) = checksums.get(&(name, version)) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        anyhow::Ok(component)
    };
    let reference = |id: &String| packages.get(id).map(|of| format!("{}@{}", text(&of["name"]), text(&of["version"])));
    let dependencies = reached.iter().map(|id| {
        let needed: BTreeSet<_> = needs.get(id).into_iter().flatten().filter_map(reference).collect();
        json!({ "ref": reference(id), "dependsOn": needed })
    });
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component(root)? },
        "components": reached.iter().filter(|id| *id != root).map(component).collect::<Result<Vec<_>>>()?,
        "dependencies": dependencies.collect::<Vec<_>>(),
    }))
}

/// Whether what is needed takes part in a build: tests alone need the rest.
fn is_built(need: &Value) -> bool {
    need["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"] != "dev"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Checksums of what Cargo.lock fetches, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let packages = lock.split("[[package]]").skip(1);
    let field = |package: &str, key: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    packages
        .filter_map(|package| {
            Some(((field(package, "name")?, field(package, "version")?), field(package, "checksum")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_on_the_bill() {
        let need = |id: &str, kind: Option<&str>| json!({ "pkg": id, "dep_kinds": [{ "kind": kind }] });
        let package = |id: &str| json!({ "id": id, "name": id, "version": "1.0.0", "license": "MIT/Apache-2.0" });
        let packages = ["taut", "ours", "theirs", "tester", "builder", "alone"].map(package);
        let metadata = json!({
            "packages": packages,
            "workspace_members": ["taut", "ours", "alone"],
            "resolve": { "nodes": [
                { "id": "taut", "deps": [need("ours", None), need("tester", Some("dev"))] },
                { "id": "ours", "deps": [need("theirs", None), need("builder", Some("build"))] },
                { "id": "theirs", "deps": [] },
            ] },
        });
        let lock = "[[package]]\nname = \"theirs\"\nversion = \"1.0.0\"\nsource = \"x\"\nchecksum = \"abc\"\n";
        let bill = bill(&metadata, &checksums(lock), "taut").unwrap();
        let names: Vec<_> = bill["components"].as_array().unwrap().iter().map(|one| text(&one["name"])).collect();
        assert_eq!(names, ["builder", "ours", "theirs"]);
        let theirs = &bill["components"][2];
        assert_eq!(
            (&theirs["purl"], &theirs["hashes"][0]["content"]),
            (&json!("pkg:cargo/theirs@1.0.0"), &json!("abc"))
        );
        assert_eq!(theirs["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert!(bill["components"][1].get("purl").is_none());
        assert_eq!(
            bill["dependencies"][1],
            json!({ "ref": "ours@1.0.0", "dependsOn": ["builder@1.0.0", "theirs@1.0.0"] })
        );
        assert!(super::bill(&metadata, &BTreeMap::new(), "nobody").is_err());
    }
}
