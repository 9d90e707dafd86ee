//! A crate's source as modules: which file has which, what each defines and imports, and every name that its code uses.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, Meta, Token, UseTree, Visibility};

/// A library or program: its files and its modules, the root first.
#[derive(Default)]
pub(super) struct Source {
    pub(super) files: Vec<PathBuf>,
    pub(super) modules: Vec<Module>,
}

#[derive(Default)]
pub(super) struct Module {
    /// Index of the file that it stands in.
    pub(super) file: usize,
    pub(super) parent: Option<usize>,
    pub(super) children: HashMap<String, usize>,
    /// What it defines itself.
    pub(super) items: HashSet<String>,
    pub(super) imports: Vec<Import>,
    pub(super) uses: Vec<Use>,
}

/// A name of a `use` tree.
pub(super) struct Import {
    pub(super) path: Vec<String>,
    /// As what it is known here; a glob has no name.
    pub(super) name: Option<String>,
    /// Whether others may import it from here.
    pub(super) exported: bool,
    pub(super) line: usize,
}

/// A path in the code.
pub(super) struct Use {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
}

impl Source {
    /// Reads the files beneath a crate's root, those that only tests are built with left out.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut source = Self::default();
        let directory = root.parent().context("a crate's root is no file")?.to_owned();
        source.read_file(root, &directory, None)?;
        Ok(source)
    }

    /// Reads a file as the next module; the modules that it declares are looked for in `directory`.
    fn read_file(&mut self, path: &Path, directory: &Path, parent: Option<usize>) -> Result<usize> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let file = syn::parse_file(&text).with_context(|| format!("cannot parse {}", path.display()))?;
        self.files.push(path.to_owned());
        let module = self.add(self.files.len() - 1, parent);
        self.read_items(&file.items, module, directory)?;
        Ok(module)
    }

    fn add(&mut self, file: usize, parent: Option<usize>) -> usize {
        self.modules.push(Module { file, parent, ..Module::default() });
        self.modules.len() - 1
    }

    fn read_items(&mut self, items: &[Item], module: usize, directory: &Path) -> Result<()> {
        for item in items {
            match item {
                Item::Mod(inner) if !only_tests(&inner.attrs) => self.read_module(inner, module, directory)?,
                Item::Mod(_) => {}
                item => {
                    let here = &mut self.modules[module];
                    here.items.extend(name(item));
                    Code { module: here }.visit_item(item);
                }
            }
        }
        Ok(())
    }

    fn read_module(&mut self, declared: &ItemMod, parent: usize, directory: &Path) -> Result<()> {
        let name = declared.ident.to_string();
        let beneath = directory.join(&name);
        let module = if let Some((_, items)) = &declared.content {
            let module = self.add(self.modules[parent].file, Some(parent));
            self.read_items(items, module, &beneath)?;
            module
        } else if let Some(path) = named_path(&declared.attrs) {
            let folder = self.files[self.modules[parent].file].parent().map(Path::to_owned).unwrap_or_default();
            self.read_file(&folder.join(path), &folder, Some(parent))?
        } else {
            let file = directory.join(format!("{name}.rs"));
            let file = if file.exists() { file } else { beneath.join("mod.rs") };
            self.read_file(&file, &beneath, Some(parent))?
        };
        self.modules[parent].children.insert(name, module);
        Ok(())
    }
}

/// What an item is called, if it can be called.
fn name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(ident.to_string())
}

/// Collects what the code of a module imports and uses.
struct Code<'a> {
    module: &'a mut Module,
}

impl Code<'_> {
    fn import(&mut self, tree: &UseTree, path: &mut Vec<String>, exported: bool) {
        let line = tree.span().start().line;
        match tree {
            UseTree::Path(step) => {
                path.push(step.ident.to_string());
                self.import(&step.tree, path, exported);
                path.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, path, exported)),
            UseTree::Glob(_) => self.module.imports.push(Import { path: path.clone(), name: None, exported, line }),
            UseTree::Name(last) => self.bind(&last.ident.to_string(), &last.ident.to_string(), path, exported, line),
            UseTree::Rename(last) => {
                self.bind(&last.ident.to_string(), &last.rename.to_string(), path, exported, line);
            }
        }
    }

    fn bind(&mut self, last: &str, name: &str, path: &[String], exported: bool, line: usize) {
        // `use a::{self}` is `use a`.
        let (path, name) = match path.last() {
            Some(module) if last == "self" => (path.to_vec(), if name == "self" { module } else { name }),
            _ => ([path, &[last.to_owned()]].concat(), name),
        };
        self.module.imports.push(Import { path, name: Some(name.to_owned()), exported, line });
    }

    /// A macro's arguments are no syntax tree: every run of names joined by `::` counts as a path.
    fn scan(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let punct =
            |at: usize, sign: char| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == sign);
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.scan(group.stream()),
                TokenTree::Ident(first) => {
                    let line = first.span().start().line;
                    let begin = at;
                    let mut path = vec![first.to_string()];
                    while punct(at + 1, ':')
                        && punct(at + 2, ':')
                        && let Some(TokenTree::Ident(next)) = tokens.get(at + 3)
                    {
                        path.push(next.to_string());
                        at += 3;
                    }
                    // A field or method, a lifetime, the rest of a longer path.
                    if begin == 0
                        || !['.', '\'', ':'].iter().any(|&sign| punct(begin - 1, sign))
                        || begin > 1 && punct(begin - 1, ':') && !punct(begin - 2, ':')
                    {
                        self.module.uses.push(Use { path, line });
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }
}

/// Code with a `cfg` that only tests have is not looked at.
macro_rules! without_tests {
    ($($visit:ident: $syntax:ty),* $(,)?) => {
        $(fn $visit(&mut self, syntax: &'ast $syntax) {
            if !only_tests(&syntax.attrs) {
                visit::$visit(self, syntax);
            }
        })*
    };
}

impl<'ast> Visit<'ast> for Code<'_> {
    without_tests! {
        visit_item_const: syn::ItemConst,
        visit_item_enum: syn::ItemEnum,
        visit_item_fn: syn::ItemFn,
        visit_item_impl: syn::ItemImpl,
        visit_item_static: syn::ItemStatic,
        visit_item_struct: syn::ItemStruct,
        visit_item_trait: syn::ItemTrait,
        visit_item_type: syn::ItemType,
        visit_item_macro: syn::ItemMacro,
        visit_item_mod: ItemMod,
        visit_impl_item_const: syn::ImplItemConst,
        visit_impl_item_fn: syn::ImplItemFn,
        visit_field: syn::Field,
        visit_variant: syn::Variant,
        visit_local: syn::Local,
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if only_tests(&item.attrs) || item.leading_colon.is_some() {
            return;
        }
        let exported = !matches!(item.vis, Visibility::Inherited);
        self.import(&item.tree, &mut Vec::new(), exported);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let line = path.span().start().line;
            let path = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.module.uses.push(Use { path, line });
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.scan(call.tokens.clone());
    }

    // An attribute's names are those of its macro.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

/// The file that `#[path = "…"]` names.
fn named_path(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// Whether only a test's build has it.
fn only_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        attribute.parse_args::<Meta>().is_ok_and(|condition| holds_without_tests(&condition) == Some(false))
    })
}

/// What a condition of `cfg` is where no test is built, if that alone decides.
fn holds_without_tests(condition: &Meta) -> Option<bool> {
    let Meta::List(list) = condition else {
        return condition.path().is_ident("test").then_some(false);
    };
    let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
    let mut parts = parts.iter().map(holds_without_tests);
    if list.path.is_ident("not") {
        return parts.next()?.map(|holds| !holds);
    }
    let decisive = list.path.is_ident("any");
    let parts: Vec<_> = parts.collect();
    if parts.contains(&Some(decisive)) {
        return Some(decisive);
    }
    parts.iter().all(Option::is_some).then_some(!decisive)
}
