//! Files of a crate that import each other in a circle.
//!
//! An import goes from the file whose code uses an item to the file that *defines* it; re-exports on the way are
//! followed, and are no imports themselves. So a parent may declare its children and pass on what they have; but a
//! child that uses what its parent's file defines, while that file's own code uses the child, is a circle. What
//! counts are `use` trees and paths in the code and in arguments of macros. A module's name alone imports nothing,
//! a method brings no import that its type has not brought, and what only tests are built with is left out.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::path::Path;

use super::source::Source;

/// Where one file imports from another for the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edge {
    line: usize,
    name: String,
}

/// Files that import each other, all in one knot.
pub(super) struct Knot {
    /// Their paths beneath the root, in order.
    pub(super) files: Vec<String>,
    /// The shortest circle among them, told.
    pub(super) circle: String,
}

type Graph = BTreeMap<usize, BTreeMap<usize, Edge>>;

/// What a path leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Module(usize),
    /// An item of that file.
    Item(usize),
}

/// The knots of a source. Paths are told from `root` on.
pub(super) fn knots(source: &Source, root: &Path) -> Vec<Knot> {
    let graph = graph(source);
    let name = |file: usize| source.files[file].strip_prefix(root).unwrap_or(&source.files[file]).display().to_string();
    let mut knots = Vec::new();
    let mut seen = BTreeSet::new();
    for &file in graph.keys() {
        if !seen.insert(file) {
            continue;
        }
        let forward = reachable(&graph, file);
        let members: BTreeSet<usize> =
            forward.iter().copied().filter(|&other| reachable(&graph, other).contains(&file)).collect();
        seen.extend(&members);
        let Some(circle) = members.iter().filter_map(|&member| circle(&graph, member)).min_by_key(Vec::len) else {
            continue;
        };
        let steps = circle.iter().zip(circle.iter().cycle().skip(1)).map(|(from, to)| {
            let Edge { line, name: item } = &graph[from][to];
            format!("{}:{line} imports {item} of {}", name(*from), name(*to))
        });
        let circle = steps.collect::<Vec<_>>().join(", ");
        knots.push(Knot { files: members.into_iter().map(name).collect(), circle });
    }
    knots
}

fn reachable(graph: &Graph, from: usize) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(file) = next.pop() {
        next.extend(graph.get(&file).into_iter().flat_map(BTreeMap::keys).filter(|&&other| seen.insert(other)));
    }
    seen
}

/// The shortest way from a file back to it.
fn circle(graph: &Graph, file: usize) -> Option<Vec<usize>> {
    let mut ways = VecDeque::from([vec![file]]);
    let mut seen = HashSet::new();
    while let Some(way) = ways.pop_front() {
        for &next in graph.get(way.last()?).into_iter().flat_map(BTreeMap::keys) {
            if next == file {
                return Some(way);
            }
            if seen.insert(next) {
                ways.push_back([way.as_slice(), &[next]].concat());
            }
        }
    }
    None
}

fn graph(source: &Source) -> Graph {
    let mut graph = Graph::new();
    for (index, module) in source.modules.iter().enumerate() {
        let imports = module.imports.iter().filter(|import| !import.exported).map(|import| (&import.path, import.line));
        let uses = module.uses.iter().map(|used| (&used.path, used.line));
        for (path, line) in imports.chain(uses) {
            if let Some(Target::Item(file)) = source.resolve(index, path, &mut HashSet::new())
                && file != module.file
            {
                let name = path.join("::");
                let edge = graph
                    .entry(module.file)
                    .or_default()
                    .entry(file)
                    .or_insert_with(|| Edge { line, name: name.clone() });
                if line < edge.line {
                    *edge = Edge { line, name };
                }
            }
        }
    }
    graph
}

impl Source {
    /// What a path in a module leads to, if it is of this crate. `seen` are the names looked up on the way to this one.
    fn resolve<'a>(
        &'a self,
        module: usize,
        path: &'a [String],
        seen: &mut HashSet<(usize, &'a str)>,
    ) -> Option<Target> {
        let (first, mut rest) = path.split_first()?;
        let mut target = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(module),
            "super" => Target::Module(self.modules[module].parent?),
            name => self.find(module, name, !rest.is_empty(), seen)?,
        };
        while let (Target::Module(inside), Some((next, after))) = (target, rest.split_first()) {
            target = match next.as_str() {
                "super" => Target::Module(self.modules[inside].parent?),
                name => self.find(inside, name, !after.is_empty(), seen)?,
            };
            rest = after;
        }
        Some(target)
    }

    /// What a name means in a module; `inner` says that the path goes on behind it.
    fn find<'a>(
        &'a self,
        module: usize,
        name: &'a str,
        inner: bool,
        seen: &mut HashSet<(usize, &'a str)>,
    ) -> Option<Target> {
        if !seen.insert((module, name)) {
            return None;
        }
        let here = &self.modules[module];
        let child = here.children.get(name).map(|&child| Target::Module(child));
        let item = here.items.contains(name).then_some(Target::Item(here.file));
        let own = if inner { child.or(item) } else { item.or(child) };
        let named = || {
            let mut imports = here.imports.iter().filter(|import| import.name.as_deref() == Some(name));
            imports.find_map(|import| self.resolve(module, &import.path, seen))
        };
        own.or_else(named).or_else(|| {
            let mut globs = here.imports.iter().filter(|import| import.name.is_none());
            globs.find_map(|glob| match self.resolve(module, &glob.path, &mut HashSet::new())? {
                Target::Module(inside) if inside != module => self.find(inside, name, inner, seen),
                _ => None,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The knots of a crate with these files.
    fn knots_of(files: &[(&str, &str)]) -> Vec<Knot> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        knots(&Source::read(&folder.path().join("lib.rs")).unwrap(), folder.path())
    }

    fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
        knots_of(files).into_iter().map(|knot| knot.circle).collect()
    }

    #[test]
    fn two_files_that_import_each_other_are_told_with_their_lines() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a.rs", "use crate::b::B;\npub struct A(B);\n"),
            ("b.rs", "pub struct B;\nimpl B {\n    fn a(self) -> super::a::A { super::a::A(self) }\n}\n"),
        ];
        assert_eq!(circles_of(&files), ["a.rs:1 imports crate::b::B of b.rs, b.rs:3 imports super::a::A of a.rs"]);
    }

    #[test]
    fn the_shortest_circle_of_a_knot_is_told() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::B; pub struct A(B);"),
            ("b.rs", "use crate::c::C; pub struct B(C);"),
            ("c.rs", "use crate::{a::A, d::D}; pub struct C(A, D);"),
            ("d.rs", "use crate::c::C; pub struct D(C);"),
        ];
        let knots = knots_of(&files);
        assert_eq!(knots.len(), 1);
        assert_eq!(knots[0].files, ["a.rs", "b.rs", "c.rs", "d.rs"]);
        assert!(knots[0].circle.starts_with("c.rs:1 imports crate::d::D"), "{}", knots[0].circle);
    }

    #[test]
    fn a_parent_may_declare_its_children_and_pass_on_what_they_have() {
        let children = [("a.rs", "use crate::B; pub struct A(B);"), ("b.rs", "pub struct B;")];
        let parent = "mod a; mod b; pub use a::A; pub(crate) use b::B;";
        assert_eq!(circles_of(&[&[("lib.rs", parent)], &children[..]].concat()), Vec::<String>::new());
        // Code that uses what is passed on does import it. This parent has nothing that they use, though.
        let parent = format!("{parent} pub fn f(a: A) {{}}");
        assert_eq!(circles_of(&[&[("lib.rs", parent.as_str())], &children[..]].concat()), Vec::<String>::new());
    }

    #[test]
    fn a_child_and_a_parent_that_use_each_others_items_are_a_circle() {
        let child = ("child.rs", "use super::LIMIT; pub fn f() -> u8 { LIMIT }");
        let knot = |parent| circles_of(&[("lib.rs", parent), child]);
        assert_eq!(knot("mod child; const LIMIT: u8 = 1; pub fn g() -> u8 { child::f() }").len(), 1);
        assert_eq!(knot("mod child; const LIMIT: u8 = 1; pub use child::f; pub fn g() -> u8 { f() }").len(), 1);
        assert_eq!(knot("mod child; const LIMIT: u8 = 1; pub use child::f;"), Vec::<String>::new());
    }

    #[test]
    fn names_are_followed_through_globs_renames_and_macros() {
        let circle = |a| {
            circles_of(&[
                ("lib.rs", "mod a; mod b;"),
                ("a.rs", a),
                ("b.rs", "use crate::a::A; pub fn f(_: A) {} pub struct B;"),
            ])
        };
        for a in [
            "use crate::b::*; pub struct A(B);",
            "use crate::b::{self as other}; pub struct A(other::B);",
            "use crate::b::B as Other; pub struct A(Other);",
            "pub struct A; fn g() { println!(\"{:?}\", crate::b::f(A)); }",
            "mod inner { pub struct C(super::super::b::B); } pub struct A(inner::C);",
        ] {
            assert_eq!(circle(a).len(), 1, "{a}");
        }
        // A module's name, a field, a method, another crate's item of the same name.
        for a in [
            "use crate::b; pub struct A;",
            "pub struct A { b: u8 } fn g(a: A) { dbg!(a.f(), a.b); }",
            "use other::B; pub struct A(B);",
        ] {
            assert_eq!(circle(a), Vec::<String>::new(), "{a}");
        }
    }

    #[test]
    fn what_only_tests_are_built_with_is_left_out() {
        let circle =
            |a| circles_of(&[("lib.rs", "mod a; mod b;"), ("a.rs", a), ("b.rs", "use crate::a::A; pub struct B(A);")]);
        for a in [
            "pub struct A; #[cfg(test)] mod tests { use crate::b::B; fn f(_: B) {} }",
            "pub struct A; #[cfg(test)] mod not_there;",
            "pub struct A; #[cfg(all(test, not(loom)))] use crate::b::B;",
            "pub struct A; impl A { #[cfg(test)] fn b() -> crate::b::B { crate::b::B(A) } }",
        ] {
            assert_eq!(circle(a), Vec::<String>::new(), "{a}");
        }
        assert_eq!(circle("pub struct A; #[cfg(not(test))] use crate::b::B;").len(), 1);
        assert_eq!(circle("pub struct A; #[cfg(any(test, feature = \"b\"))] use crate::b::B;").len(), 1);
    }

    #[test]
    fn modules_are_found_where_they_stand() {
        let files = [
            ("lib.rs", "mod outer; mod direct { pub mod inner; }"),
            ("outer/mod.rs", "mod deep; #[path = \"elsewhere.rs\"] mod named;"),
            ("outer/deep.rs", "pub struct Deep(super::named::Named);"),
            ("outer/elsewhere.rs", "pub struct Named(crate::direct::inner::Inner);"),
            ("direct/inner.rs", "pub struct Inner(crate::outer::deep::Deep);"),
        ];
        assert_eq!(knots_of(&files)[0].files, ["outer/deep.rs", "outer/elsewhere.rs", "direct/inner.rs"]);
    }
}
