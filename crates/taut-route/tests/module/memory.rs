//! What the kernel has allocated. Debian's kernels are built without kmemleak, so objects are counted.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than what `kfree_rcu` is to free waits for others of its kind (`KFREE_DRAIN_JIFFIES`, 5 s,
/// kernel/rcu/tree.c).
const SETTLED: Duration = Duration::from_secs(6);
const PAUSE: Duration = Duration::from_millis(200);
const RUNS: usize = 4;

/// What turns lose: that of which at least so many more stay in each run of `turns`. What the kernel
/// takes for itself, and be it a slab full of objects, grows in some of the runs, and what is lost in
/// all; so one that shows nothing tells it.
pub(crate) fn lost_by(most: i64, mut turns: impl FnMut()) -> Vec<String> {
    let mut run = || {
        let before = Objects::now();
        turns();
        before.grown(most)
    };
    let mut lost: BTreeMap<String, Vec<i64>> = run().into_iter().map(|(name, more)| (name, vec![more])).collect();
    for _ in 1..RUNS {
        if lost.is_empty() {
            break;
        }
        let again = run();
        lost.retain(|name, _| again.contains_key(name));
        lost.iter_mut().for_each(|(name, runs)| runs.push(again[name]));
    }
    lost.into_iter().map(|(name, runs)| format!("{name} {runs:?}")).collect()
}

/// How many objects there are in the general caches and in that of sysfs, and areas of vmalloc.
///
/// The files stay open: each opened file of sysfs takes an object of kmalloc-96, freed seconds
/// after it is closed (`kernfs_open_node`, fs/kernfs/file.c). A count that opens them again and
/// again would find its own.
struct Objects {
    caches: Vec<Cache>,
    areas: File,
    before: BTreeMap<String, i64>,
}

struct Cache {
    name: String,
    shrink: File,
    objects: File,
}

impl Objects {
    /// What there is now. What was freed before goes first, or it would hide as much that is lost later.
    fn now() -> Self {
        let caches = fs::read_dir("/sys/kernel/slab").unwrap().flatten();
        let caches = caches.filter_map(|entry| Cache::watched(&entry.path())).collect();
        let mut objects = Self { caches, areas: File::open("/proc/vmallocinfo").unwrap(), before: BTreeMap::new() };
        // The first one has the files take what they are read into.
        objects.count();
        let mut before = objects.count();
        assert!(before.contains_key("kmalloc-4k"), "{before:?}");
        let begin = Instant::now();
        while begin.elapsed() < SETTLED {
            thread::sleep(PAUSE);
            keep_least(&mut before, objects.count());
        }
        objects.before = before;
        objects
    }

    /// Those of which there are at least so many more than before, by name, and stay: much is freed some
    /// grace periods of RCU later, and the threads that do so wait for their turn in a guest that
    /// has a part of a processor. What is lost stays for ever, so a minute tells it as well.
    fn grown(&self, most: i64) -> BTreeMap<String, i64> {
        let mut least = self.count();
        for _ in 0..300 {
            if self.more(&least, most).is_empty() {
                break;
            }
            thread::sleep(PAUSE);
            keep_least(&mut least, self.count());
        }
        self.more(&least, most)
    }

    fn more(&self, after: &BTreeMap<String, i64>, most: i64) -> BTreeMap<String, i64> {
        let more = after.iter().map(|(name, count)| (name.clone(), count - self.before[name]));
        more.filter(|(_, more)| *more >= most).collect()
    }

    /// Never too few, and too many where others allocate at the same time.
    fn count(&self) -> BTreeMap<String, i64> {
        let mut objects: BTreeMap<_, _> = self.caches.iter().map(|cache| (cache.name.clone(), cache.count())).collect();
        let mut areas = String::new();
        let mut file = &self.areas;
        file.rewind().unwrap();
        file.read_to_string(&mut areas).unwrap();
        // Areas that are free already and will be taken back together some time are none.
        let areas = areas.lines().filter(|area| !area.contains("unpurged")).count();
        objects.insert("vmalloc".to_owned(), i64::try_from(areas).unwrap());
        objects
    }
}

fn keep_least(least: &mut BTreeMap<String, i64>, counted: BTreeMap<String, i64>) {
    for (name, count) in counted {
        least.entry(name).and_modify(|least| *least = count.min(*least));
    }
}

impl Cache {
    fn watched(directory: &Path) -> Option<Self> {
        let name = directory.file_name()?.to_str()?.to_owned();
        (name.starts_with("kmalloc") || name.starts_with("kernfs")).then(|| Self {
            name,
            shrink: File::options().write(true).open(directory.join("shrink")).unwrap(),
            objects: File::open(directory.join("objects")).unwrap(),
        })
    }

    /// Where a processor has taken a slab for itself, all its objects count as allocated
    /// (mm/slub.c). So all slabs are given back before.
    fn count(&self) -> i64 {
        self.shrink.write_at(b"1", 0).unwrap();
        let mut text = [0; 64];
        let length = self.objects.read_at(&mut text, 0).unwrap();
        let text = str::from_utf8(&text[..length]).unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    }
}
