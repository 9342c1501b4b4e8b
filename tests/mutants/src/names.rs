//! Declarations of the whole library: constants that are quantities, and enums with variants without fields.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{Fields, ImplItemConst, ItemConst, ItemEnum, Type};

use crate::operators::is_quantity;

#[derive(Debug, Default)]
pub struct Names {
    /// Whether all constants of this name are quantities.
    constants: BTreeMap<String, bool>,
    /// The variants without fields of the enums of this name.
    variants: BTreeMap<String, Vec<String>>,
}

impl Names {
    pub fn is_quantity(&self, constant: &str) -> bool {
        self.constants.get(constant).copied().unwrap_or(false)
    }

    /// The variant that takes the place of this one: the next without fields.
    pub fn other_variant(&self, name: &str, variant: &str) -> Option<&str> {
        let variants = self.variants.get(name)?;
        let at = variants.iter().position(|other| other == variant)?;
        let other = &variants[(at + 1) % variants.len()];
        (other != variant).then_some(other.as_str())
    }

    fn constant(&mut self, name: &syn::Ident, kind: &Type) {
        let is_quantity = is_quantity(kind);
        self.constants.entry(name.to_string()).and_modify(|all| *all &= is_quantity).or_insert(is_quantity);
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        self.constant(&item.ident, &item.ty);
        visit::visit_item_const(self, item);
    }

    fn visit_impl_item_const(&mut self, item: &'ast ImplItemConst) {
        self.constant(&item.ident, &item.ty);
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        let plain = item.variants.iter().filter(|variant| matches!(variant.fields, Fields::Unit));
        let plain = plain.map(|variant| variant.ident.to_string()).collect();
        self.variants.insert(item.ident.to_string(), plain);
    }
}
