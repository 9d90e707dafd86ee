//! The kernel modules that a guest gets: those asked for and what they need, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail};

use super::cpio::Archive;
use super::kernel::Kernel;

/// Included in every guest where the kernel has them as modules; loaded when something asks for them.
const ALWAYS: [&str; 25] = [
    // The share by which files come back.
    "virtio_pci",
    "9pnet_virtio",
    "9p",
    // The command, where a machine gets it later.
    "qemu_fw_cfg",
    // Bluetooth, and the controllers that programs make.
    "bluetooth",
    "rfcomm",
    "hci_vhci",
    "hci_uart",
    // What the Security Manager's cryptography asks for by name, so that nothing in the log is about its absence.
    "cmac",
    "ecb",
    "ctr",
    "hmac",
    "sha256_generic",
    "sha512_generic",
    "aes_generic",
    "drbg",
    "jitterentropy_rng",
    "ecdh_generic",
    // The same for programs that emulate controllers (AF_ALG).
    "algif_hash",
    "algif_skcipher",
    // Networks and devices made of nothing.
    "veth",
    "tun",
    "uinput",
    "evdev",
    "dummy",
];

/// What `modules.dep` and its companions say (modules.dep(5)).
struct Index {
    /// File of each module by name, with the files that it needs.
    files: BTreeMap<String, (String, Vec<String>)>,
    built_in: BTreeSet<String>,
}

/// Adds modules to an archive, so that modprobe finds them there: the kernel's, and those built for it.
///
/// # Errors
/// The kernel has no module of a name in `wanted`.
pub(super) fn add(
    kernel: &Kernel,
    wanted: &[String],
    built: &BTreeMap<String, Vec<u8>>,
    archive: &mut Archive,
) -> Result<()> {
    let source = kernel.modules();
    let read = |name: &str| {
        let path = source.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let (dep, alias, builtin) = (read("modules.dep")?, read("modules.alias")?, read("modules.builtin")?);
    let index = Index::parse(&dep, &builtin);
    let is_ours = |module: &String| built.keys().any(|file| name(file) == name(module));
    let theirs: Vec<String> = wanted.iter().filter(|module| !is_ours(module)).cloned().collect();
    let chosen = index.choose(&theirs, &kernel.release)?;

    let directory = format!("lib/modules/{}", kernel.release);
    let mut own_lines = String::new();
    for (file, contents) in built {
        archive.file(&format!("{directory}/updates/{file}"), contents.clone());
        // Ours need nothing but what every kernel has built in.
        own_lines += &format!("updates/{file}:\n");
    }
    for file in &chosen {
        archive.file(&format!("{directory}/{file}"), fs::read(source.join(file))?);
    }
    let names: BTreeSet<String> = chosen.iter().map(|file| name(file)).collect();
    let lines = |text: &str, keep: &dyn Fn(&str) -> bool| -> Vec<u8> {
        text.lines().filter(|line| keep(line)).flat_map(|line| [line, "\n"]).collect::<String>().into_bytes()
    };
    let mut kept = lines(&dep, &|line| line.split_once(':').is_some_and(|(file, _)| chosen.contains(file)));
    kept.extend(own_lines.into_bytes());
    archive.file(&format!("{directory}/modules.dep"), kept);
    archive.file(
        &format!("{directory}/modules.alias"),
        lines(&alias, &|line| line.rsplit(' ').next().is_some_and(|module| names.contains(&name(module)))),
    );
    archive.file(&format!("{directory}/modules.builtin"), builtin.into_bytes());
    Ok(())
}

impl Index {
    fn parse(dep: &str, builtin: &str) -> Self {
        let line = |line: &str| {
            let (file, needs) = line.split_once(':')?;
            Some((name(file), (file.to_owned(), needs.split_whitespace().map(str::to_owned).collect())))
        };
        Self { files: dep.lines().filter_map(line).collect(), built_in: builtin.lines().map(name).collect() }
    }

    /// The files of what is wanted and of what every guest has, with all that they need.
    fn choose(&self, wanted: &[String], release: &str) -> Result<BTreeSet<String>> {
        let mut chosen = BTreeSet::new();
        for module in wanted {
            match self.files.get(&name(module)) {
                Some((file, needs)) => chosen.extend(needs.iter().chain([file]).cloned()),
                None if self.built_in.contains(&name(module)) => {}
                None => bail!("Linux {release} has no module `{module}`"),
            }
        }
        for (file, needs) in ALWAYS.iter().filter_map(|module| self.files.get(&name(module))) {
            chosen.extend(needs.iter().chain([file]).cloned());
        }
        Ok(chosen)
    }
}

/// Name of the module in a file; `-` and `_` are one to modprobe.
fn name(file: &str) -> String {
    let file = file.rsplit('/').next().unwrap_or(file);
    file.strip_suffix(".ko").unwrap_or(file).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "kernel/net/9p/9pnet.ko:\nkernel/net/9p/9pnet_virtio.ko: kernel/net/9p/9pnet.ko kernel/v/virtio.ko\n\
                       kernel/v/virtio.ko:\nkernel/d/leds-gpio.ko:\nkernel/x/unwanted.ko:\n";

    #[test]
    fn a_module_comes_with_what_it_needs() {
        let index = Index::parse(DEP, "kernel/lib/crc16.ko\n");
        let chosen = index.choose(&["leds_gpio".to_owned(), "crc16".to_owned()], "1").unwrap();
        let names: Vec<&str> = chosen.iter().map(String::as_str).collect();
        let expected =
            ["kernel/d/leds-gpio.ko", "kernel/net/9p/9pnet.ko", "kernel/net/9p/9pnet_virtio.ko", "kernel/v/virtio.ko"];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_module_that_is_not_there_is_an_error() {
        let error = Index::parse(DEP, "").choose(&["hci_none".to_owned()], "6.1").unwrap_err();
        assert_eq!(error.to_string(), "Linux 6.1 has no module `hci_none`");
    }
}
