//! A container image of the static program alone, as an archive of an OCI image layout (OCI Image Format
//! Specification 1.0).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::machine::Machine;
use super::tape;
use crate::packages::{SKOPEO, UMOCI};
use crate::shell;

/// Where the program is in the image.
const PROGRAM: &str = "usr/bin/taut";

/// The name of the image in its layout.
const TAG: &str = env!("CARGO_PKG_VERSION");

/// Packs an image of what the archive holds.
pub(super) fn pack(machine: Machine, unpacked: &Path, directory: &Path, time: u64) -> Result<PathBuf> {
    let work = tempfile::tempdir_in(directory)?;
    let (root, layout) = (work.path().join("root"), Layout::new(work.path().join("layout"))?);
    fs::create_dir_all(root.join("usr/bin"))?;
    fs::copy(unpacked.join("taut"), root.join(PROGRAM))?;
    let licences = root.join("usr/share/doc/tautline");
    fs::create_dir_all(&licences)?;
    for file in ["LICENSE", "LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(unpacked.join(file), licences.join(file))?;
    }
    let layer = work.path().join("layer.tar");
    tape::tar(&root, ".", &layer, time)?;
    let content = digest(&layer)?;
    tape::gzip(&layer)?;
    let layer = layout.add(&work.path().join("layer.tar.gz"), "application/vnd.oci.image.layer.v1.tar+gzip")?;
    let created =
        shell::output(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ", "-d"]).arg(format!("@{time}")))?;
    let config = layout.write(
        &json!({
            "created": created.trim(),
            "architecture": machine.debian(),
            "os": "linux",
            "config": {
                "Entrypoint": [format!("/{PROGRAM}")],
                "Env": ["PATH=/usr/bin"],
                "Labels": {
                    "org.opencontainers.image.title": "tautline",
                    "org.opencontainers.image.version": TAG,
                    "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
                },
            },
            "rootfs": { "type": "layers", "diff_ids": [content] },
            "history": [{ "created": created.trim(), "created_by": "cargo xtask dist" }],
        }),
        "application/vnd.oci.image.config.v1+json",
    )?;
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({ "schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer] });
    let mut manifest = layout.write(&manifest, kind)?;
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": TAG });
    manifest["platform"] = json!({ "architecture": machine.debian(), "os": "linux" });
    let index = "application/vnd.oci.image.index.v1+json";
    layout.end(&json!({ "schemaVersion": 2, "mediaType": index, "manifests": [manifest] }))?;
    let image = directory.join(format!("{}.oci.tar", machine.archive()));
    tape::tar(&layout.0, ".", &image, time)?;
    Ok(image)
}

/// Has others read the image: skopeo checks manifest and configuration, umoci the layers as it unpacks them. Then its
/// entry point works in its root.
pub(super) fn try_out(machine: Machine, image: &Path) -> Result<()> {
    let missing = crate::packages::ensure(&[&SKOPEO, &UMOCI]);
    if !missing.is_empty() {
        let (name, missing) = (machine.name(), missing.join(", "));
        return shell::left_out(&format!("{name}: the image is not read by others: not installed: {missing}"));
    }
    let work = tempfile::tempdir()?;
    let layout = work.path().join("layout");
    let to = format!("oci:{}:{TAG}", layout.display());
    let from = format!("oci-archive:{}:{TAG}", image.display());
    let override_machine = ["--override-arch", machine.debian(), "--insecure-policy"];
    shell::output(Command::new("skopeo").args(override_machine).args(["copy", &from, &to]))?;
    let bundle = work.path().join("bundle");
    let mut umoci = Command::new("umoci");
    umoci.arg("unpack").args((!shell::is_root()).then_some("--rootless"));
    umoci.arg("--image").arg(format!("{}:{TAG}", layout.display())).arg(&bundle);
    shell::output(&mut umoci)?;
    let text = fs::read(bundle.join("config.json"))?;
    let config: Value = serde_json::from_slice(&text).context("what umoci wrote")?;
    let entry = config["process"]["args"][0].as_str().context("the image has no entry point")?;
    let program = bundle.join("rootfs").join(entry.trim_start_matches('/'));
    let version = shell::output(machine.runner(&program).arg("--version"))?;
    if !version.contains(env!("CARGO_PKG_VERSION")) {
        bail!("the image's program says that it is {version}");
    }
    println!("{}: the image was read by skopeo, unpacked by umoci, and runs {entry}", machine.name());
    Ok(())
}

/// A directory of blobs, named by what they hold.
struct Layout(PathBuf);

impl Layout {
    fn new(directory: PathBuf) -> Result<Self> {
        fs::create_dir_all(directory.join("blobs/sha256"))?;
        fs::write(directory.join("oci-layout"), json!({ "imageLayoutVersion": "1.0.0" }).to_string())?;
        Ok(Self(directory))
    }

    /// Takes a file in, and describes it.
    fn add(&self, file: &Path, kind: &str) -> Result<Value> {
        let digest = digest(file)?;
        let size = fs::metadata(file)?.len();
        fs::rename(file, self.0.join("blobs").join(digest.replace(':', "/")))?;
        Ok(json!({ "mediaType": kind, "digest": digest, "size": size }))
    }

    fn write(&self, value: &Value, kind: &str) -> Result<Value> {
        let file = self.0.join("new");
        fs::write(&file, value.to_string())?;
        self.add(&file, kind)
    }

    fn end(&self, index: &Value) -> Result<()> {
        Ok(fs::write(self.0.join("index.json"), index.to_string())?)
    }
}

/// `sha256:` and 64 digits.
fn digest(file: &Path) -> Result<String> {
    let line = shell::output(Command::new("sha256sum").arg("--").arg(file))?;
    let sum = line.split_whitespace().next().context("sha256sum says nothing")?;
    Ok(format!("sha256:{}", sum.trim_start_matches('\\')))
}
