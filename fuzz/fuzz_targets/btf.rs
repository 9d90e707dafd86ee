//! Types of a kernel, of any bytes: reading them and asking for members never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_bpf::Btf;

fuzz_target!(|data: &[u8]| {
    let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
    bytes.extend(data);
    let Ok(btf) = Btf::parse(bytes) else { return };
    let names: Vec<&str> = data.split(|&byte| byte == 0).filter_map(|name| std::str::from_utf8(name).ok()).collect();
    for &structure in names.iter().take(16) {
        let _ = (btf.size(structure), btf.tracepoint(structure));
        for &member in names.iter().take(16) {
            let _ = btf.field(structure, member);
        }
    }
});
