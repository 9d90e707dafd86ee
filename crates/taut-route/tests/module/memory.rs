//! What the kernel has allocated. Debian's kernels are built without kmemleak, so objects are counted.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

/// Objects in the general caches and in that of sysfs, by cache, and areas of vmalloc. Exact but
/// for what others allocate: what each processor keeps for itself is given back before.
pub(crate) fn objects() -> BTreeMap<String, i64> {
    for cache in fs::read_dir("/sys/kernel/slab").unwrap().flatten() {
        if is_watched(&cache.file_name().to_string_lossy()) {
            fs::write(cache.path().join("shrink"), "1").unwrap();
        }
    }
    let slabs = fs::read_to_string("/proc/slabinfo").unwrap();
    let mut objects: BTreeMap<String, i64> = slabs
        .lines()
        .filter(|line| is_watched(line))
        .map(|line| {
            let mut words = line.split_whitespace();
            (words.next().unwrap().to_owned(), words.next().unwrap().parse().unwrap())
        })
        .collect();
    assert!(objects.keys().any(|name| name == "kmalloc-4k"), "{objects:?}");
    // Areas that are free already and will be taken back together some time are none.
    let areas = fs::read_to_string("/proc/vmallocinfo").unwrap();
    let areas = areas.lines().filter(|area| !area.contains("unpurged")).count();
    objects.insert("vmalloc".to_owned(), i64::try_from(areas).unwrap());
    objects
}

fn is_watched(cache: &str) -> bool {
    cache.starts_with("kmalloc") || cache.starts_with("kernfs")
}

/// Those of which there are at least so many more than before, and stay: much is freed some grace
/// periods of RCU later, or with others of its kind after five seconds (`KFREE_DRAIN_JIFFIES`,
/// kernel/rcu/tree.c), and the threads that do so wait for their turn in a guest that has a part of
/// a processor. What is lost stays for ever, so a minute tells it as well.
pub(crate) fn grown(before: &BTreeMap<String, i64>, most: i64) -> Vec<String> {
    let mut grown = Vec::new();
    for _ in 0..300 {
        let after = objects();
        let more = after.iter().map(|(name, count)| (name, count - before.get(name).unwrap_or(&0)));
        grown = more.filter(|(_, more)| *more >= most).map(|(name, more)| format!("{name} {more}")).collect();
        if grown.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(200));
    }
    grown
}
