//! The mutants of a file. Tests, constants and texts for people are left alone.

use std::mem;
use std::ops::Range;

use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Arm, Attribute, Block, Expr, ExprBinary, ExprCall, ExprClosure, ExprIf, ExprMatch, ExprMethodCall,
    ExprPath, ImplItemConst, ImplItemFn, ItemConst, ItemEnum, ItemFn, ItemImpl, ItemMod, ItemStatic, Lit,
    Local, Macro, Pat, ReturnType, Signature, Stmt, Token, Type, UnOp,
};

use crate::mutant::{Edit, Mutant};
use crate::names::Names;
use crate::operators;

/// The most characters of the code in a mutant's name.
const LONGEST: usize = 90;

/// All mutants of a file in the order of the text.
///
/// # Errors
/// If the file is not Rust.
pub fn mutants(file: &str, text: &str, names: &Names) -> syn::Result<Vec<Mutant>> {
    let mut finder = Finder {
        file,
        text,
        names,
        kind: String::new(),
        function: String::new(),
        is_constant: false,
        is_unused: false,
        found: Vec::new(),
    };
    finder.visit_file(&syn::parse_file(text)?);
    let mut found = finder.found;
    found.sort_by_key(|mutant| (mutant.range.start, std::cmp::Reverse(mutant.range.end)));
    Ok(found)
}

/// Whether an item is for tests, or for a feature that the build of the mutants does not have.
pub fn is_left_out(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = match &attribute.meta {
            syn::Meta::List(list) => list.tokens.to_string(),
            _ => String::new(),
        };
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg") && (text.contains("test") || text.contains("feature"))
    })
}

struct Finder<'a> {
    file: &'a str,
    text: &'a str,
    names: &'a Names,
    /// The type whose methods are visited.
    kind: String,
    function: String,
    /// Whether the code is evaluated at compile time, where no switch can be read.
    is_constant: bool,
    /// Whether nothing uses the value of the next expression or block.
    is_unused: bool,
    found: Vec<Mutant>,
}

impl Finder<'_> {
    fn code(&self, range: &Range<usize>) -> &str {
        &self.text[range.clone()]
    }

    fn add(&mut self, range: Range<usize>, change: String, edit: Edit) {
        if self.is_constant || self.function.is_empty() {
            return;
        }
        let (file, function) = (self.file.to_owned(), self.function.clone());
        self.found.push(Mutant { file, function, change, range, edit });
    }

    fn replace(&mut self, code: &impl Spanned, other: String) {
        let range = code.span().byte_range();
        let change = format!("`{}` becomes `{}`", short(self.code(&range)), short(&other));
        self.add(range, change, Edit::Replace(other));
    }

    fn text_of(&self, code: &impl Spanned) -> String {
        self.code(&code.span().byte_range()).to_owned()
    }

    fn delete(&mut self, code: &impl Spanned) {
        let range = code.span().byte_range();
        let change = format!("without `{}`", short(self.code(&range)));
        self.add(range, change, Edit::Delete);
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, block: &Block) {
        if is_left_out(attributes) || signature.constness.is_some() {
            return;
        }
        let name = match self.kind.as_str() {
            "" => signature.ident.to_string(),
            kind => format!("{kind}::{}", signature.ident),
        };
        let outer = mem::replace(&mut self.function, name);
        if !block.stmts.is_empty() {
            let start = block.brace_token.span.open().byte_range().end;
            for value in operators::other_results(&signature.output) {
                let what = if value.is_empty() { "nothing" } else { &value };
                self.add(start..start, format!("returns `{what}` at once"), Edit::Return(value.clone()));
            }
        }
        self.is_unused = matches!(signature.output, ReturnType::Default);
        self.visit_block(block);
        self.function = outer;
    }

    fn binary(&mut self, binary: &ExprBinary) {
        let is_logic = matches!(binary.op, syn::BinOp::And(_) | syn::BinOp::Or(_));
        if has_let(&binary.left) || has_let(&binary.right) {
            // The names that a `let` in a condition binds are used outside of it, so it stays where it is.
            for side in [&binary.left, &binary.right] {
                if !has_let(side) {
                    self.replace(side, "true".to_owned());
                }
            }
        } else {
            let (left, right) = (self.text_of(&binary.left), self.text_of(&binary.right));
            for other in operators::other_operators(&binary.op) {
                let other = match binary.op {
                    _ if is_logic => format!("({left}) {other} ({right})"),
                    _ => format!("{left} {other} {right}"),
                };
                self.replace(binary, other);
            }
            if is_logic {
                self.replace(binary, left);
                self.replace(binary, right);
            }
        }
        visit::visit_expr_binary(self, binary);
    }

    fn literal(&mut self, literal: &syn::ExprLit) {
        match &literal.lit {
            Lit::Bool(value) => self.replace(literal, (!value.value).to_string()),
            Lit::Int(value) => {
                let Ok(number) = value.base10_parse::<u128>() else { return };
                self.replace(literal, format!("{}{}", number.saturating_add(1), value.suffix()));
                if number > 0 {
                    self.replace(literal, format!("{}{}", number - 1, value.suffix()));
                }
            }
            _ => {}
        }
    }

    fn path(&mut self, path: &ExprPath) {
        let segments: Vec<String> = path.path.segments.iter().map(|part| part.ident.to_string()).collect();
        let Some(last) = segments.last() else { return };
        if self.names.is_quantity(last) {
            let name = self.text_of(path);
            self.replace(path, format!("{name} * 2"));
            self.replace(path, format!("{name} / 2"));
        } else if let [.., kind, _] = &segments[..] {
            let known = if kind == "Self" { &self.kind } else { kind };
            if let Some(other) = self.names.other_variant(known, last) {
                let name = self.text_of(path);
                let qualifier = name.strip_suffix(last.as_str()).unwrap_or_default();
                self.replace(path, format!("{qualifier}{other}"));
            }
        }
    }

    fn call(&mut self, call: &ExprCall) {
        let function = self.text_of(&call.func);
        if function == "Some" {
            self.replace(call, "None".to_owned());
        } else if function.ends_with("mem::take") {
            let argument = self.text_of(&call.args);
            self.replace(call, format!("({argument}).clone()"));
        }
        visit::visit_expr_call(self, call);
    }

    fn method_call(&mut self, call: &ExprMethodCall) {
        let name = call.method.to_string();
        let receiver = self.text_of(&call.receiver);
        let is_given = !call.args.is_empty();
        if let Some(other) = operators::other_method(&name)
            && !(name == "take" && is_given)
            && (is_given || !matches!(name.as_str(), "min" | "max"))
        {
            let rest = &self.text[call.method.span().byte_range().end..call.span().byte_range().end];
            let other = format!("{receiver}.{other}{rest}");
            self.replace(call, other);
        }
        if operators::may_be_left_out(&name) && (is_given || name == "to_canonical") {
            self.replace(call, receiver);
        }
        if operators::asks_bool(&name) {
            for value in ["true", "false"] {
                self.replace(&call.receiver, value.to_owned());
            }
        }
        if operators::takes_predicate(&name) {
            for argument in &call.args {
                if let Expr::Closure(closure) = argument
                    && matches!(closure.output, ReturnType::Default)
                {
                    for value in ["true", "false"] {
                        self.replace(&closure.body, value.to_owned());
                    }
                }
            }
        }
        visit::visit_expr_method_call(self, call);
    }

    fn condition(&mut self, condition: &Expr, values: &[&str]) {
        if !has_let(condition) {
            for value in values {
                self.replace(condition, (*value).to_owned());
            }
        }
        self.visit_expr(condition);
    }

    fn if_(&mut self, if_: &ExprIf, is_unused: bool) {
        self.condition(&if_.cond, &["true", "false"]);
        self.is_unused = is_unused;
        self.visit_block(&if_.then_branch);
        if let Some((_, other)) = &if_.else_branch {
            self.is_unused = is_unused;
            self.visit_expr(other);
        }
    }

    fn match_(&mut self, match_: &ExprMatch, is_unused: bool) {
        self.visit_expr(&match_.expr);
        let takes_rest = match_.arms.last().is_some_and(|arm| match &arm.pat {
            Pat::Wild(_) => true,
            Pat::Ident(name) => name.ident.to_string().starts_with(char::is_lowercase),
            _ => false,
        });
        for (at, arm) in match_.arms.iter().enumerate() {
            self.arm(arm, takes_rest && at + 1 < match_.arms.len(), is_unused);
        }
    }

    fn arm(&mut self, arm: &Arm, may_be_passed_over: bool, is_unused: bool) {
        if let Pat::Guard(guarded) = &arm.pat {
            if !has_let(&guarded.guard) {
                self.replace(&guarded.guard, "true".to_owned());
                let range = guarded.guard.span().byte_range();
                let change = format!("never matches `{}`", short(&self.text_of(&arm.pat)));
                self.add(range, change, Edit::NeverPassGuard);
            }
            self.visit_expr(&guarded.guard);
        } else if may_be_passed_over {
            let end = arm.pat.span().byte_range().end;
            let change = format!("never matches `{}`", short(&self.text_of(&arm.pat)));
            self.add(end..end, change, Edit::NeverMatch);
        }
        if is_unused && is_deletable(&arm.body) {
            self.delete(&arm.body);
        }
        self.is_unused = is_unused;
        self.visit_expr(&arm.body);
    }

    fn constant(&mut self, value: &Expr) {
        let was_constant = mem::replace(&mut self.is_constant, true);
        self.visit_expr(value);
        self.is_constant = was_constant;
    }

    fn closure(&mut self, closure: &ExprClosure) {
        // A closure in a constant runs later.
        let was_constant = mem::replace(&mut self.is_constant, false);
        self.visit_expr(&closure.body);
        self.is_constant = was_constant;
    }

    fn statements(&mut self, statements: &[Stmt], is_unused: bool) {
        for (at, statement) in statements.iter().enumerate() {
            match statement {
                Stmt::Expr(expression, semicolon) => {
                    let is_last = at + 1 == statements.len();
                    let is_unused = semicolon.is_some() || !is_last || is_unused;
                    if is_unused && is_deletable(expression) {
                        self.delete(statement);
                    }
                    self.is_unused = is_unused;
                    self.visit_expr(expression);
                }
                other => visit::visit_stmt(self, other),
            }
        }
    }

    /// `matches!`, the only macro whose arguments are mutated.
    fn matches(&mut self, mac: &Macro) {
        let Ok(matches) = mac.parse_body::<Matches>() else { return };
        let text = self.text_of(mac);
        self.replace(mac, format!("!{text}"));
        if let Pat::Or(or) = &matches.pattern {
            let cases: Vec<String> = or.cases.iter().map(|case| self.text_of(case)).collect();
            let (start, pattern) = (mac.span().byte_range().start, or.span().byte_range());
            for left_out in 0..cases.len() {
                let mut rest = cases.clone();
                rest.remove(left_out);
                let end = mac.span().byte_range().end;
                let other = format!(
                    "{}{}{}",
                    &self.text[start..pattern.start],
                    rest.join(" | "),
                    &self.text[pattern.end..end]
                );
                let change = format!("`{}` without `{}`", short(&text), short(&cases[left_out]));
                self.add(start..end, change, Edit::Replace(other));
            }
        }
        self.visit_expr(&matches.value);
        if let Some(guard) = &matches.guard {
            self.replace(guard, "true".to_owned());
            self.visit_expr(guard);
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_item_enum(&mut self, _: &'ast ItemEnum) {}

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_left_out(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let implemented = item.trait_.as_ref().and_then(|(path, _)| path.segments.last());
        let is_text = implemented.is_some_and(|last| last.ident == "Display" || last.ident == "Debug");
        if is_text || is_left_out(&item.attrs) {
            return;
        }
        let kind = match &*item.self_ty {
            Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        let outer = mem::replace(&mut self.kind, kind.unwrap_or_default());
        visit::visit_item_impl(self, item);
        self.kind = outer;
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        let outer = mem::replace(&mut self.function, item.ident.to_string());
        self.constant(&item.expr);
        self.function = outer;
    }

    fn visit_impl_item_const(&mut self, item: &'ast ImplItemConst) {
        self.constant(&item.expr);
    }

    fn visit_item_static(&mut self, item: &'ast ItemStatic) {
        self.constant(&item.expr);
    }

    fn visit_block(&mut self, block: &'ast Block) {
        let is_unused = mem::take(&mut self.is_unused);
        self.statements(&block.stmts, is_unused);
    }

    fn visit_local(&mut self, local: &'ast Local) {
        let Some(init) = &local.init else { return };
        self.visit_expr(&init.expr);
        // The statement that leaves the function at the end of an `else` cannot be left out.
        if let Some((_, other)) = &init.diverge
            && let Expr::Block(block) = &**other
            && let [before @ .., last] = &block.block.stmts[..]
        {
            self.statements(before, true);
            if let Stmt::Expr(Expr::Return(last), _) = last {
                visit::visit_expr_return(self, last);
            }
        }
    }

    fn visit_macro(&mut self, mac: &'ast Macro) {
        if mac.path.is_ident("matches") {
            self.matches(mac);
        }
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        let is_unused = mem::take(&mut self.is_unused);
        match expression {
            Expr::Binary(binary) => self.binary(binary),
            Expr::Lit(literal) => self.literal(literal),
            Expr::Path(path) => self.path(path),
            Expr::Call(call) => self.call(call),
            Expr::MethodCall(call) => self.method_call(call),
            Expr::If(if_) => self.if_(if_, is_unused),
            Expr::Match(match_) => self.match_(match_, is_unused),
            Expr::Closure(closure) => self.closure(closure),
            Expr::Unary(unary) => {
                if matches!(unary.op, UnOp::Not(_)) {
                    let operand = self.text_of(&unary.expr);
                    self.replace(unary, operand);
                }
                visit::visit_expr_unary(self, unary);
            }
            Expr::While(while_) => {
                self.condition(&while_.cond, &["false"]);
                self.is_unused = true;
                self.visit_block(&while_.body);
            }
            Expr::ForLoop(for_) => {
                self.visit_expr(&for_.expr);
                self.is_unused = true;
                self.visit_block(&for_.body);
            }
            Expr::Loop(loop_) => {
                self.is_unused = true;
                self.visit_block(&loop_.body);
            }
            Expr::Block(block) => {
                self.is_unused = is_unused;
                self.visit_block(&block.block);
            }
            // The length is a constant.
            Expr::Repeat(repeat) => self.visit_expr(&repeat.expr),
            Expr::Const(_) => {}
            other => visit::visit_expr(self, other),
        }
    }
}

/// The arguments of `matches!`.
struct Matches {
    value: Expr,
    pattern: Pat,
    guard: Option<Expr>,
}

impl Parse for Matches {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let value = input.parse()?;
        input.parse::<Token![,]>()?;
        let pattern = Pat::parse_multi_with_leading_vert(input)?;
        let guard = if input.peek(Token![if]) {
            input.parse::<Token![if]>()?;
            Some(input.parse()?)
        } else {
            None
        };
        input.parse::<Option<Token![,]>>()?;
        Ok(Self { value, pattern, guard })
    }
}

fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// Whether the expression does something, so that it can be left out where nothing uses its value.
fn is_deletable(expression: &Expr) -> bool {
    match expression {
        Expr::Call(_)
        | Expr::MethodCall(_)
        | Expr::Assign(_)
        | Expr::Return(_)
        | Expr::Continue(_)
        | Expr::Break(_)
        | Expr::ForLoop(_)
        | Expr::Try(_) => true,
        Expr::Binary(binary) => !operators::other_operators(&binary.op).is_empty(),
        // Without a `let` the condition is replaced by `false`, which is the same.
        Expr::If(if_) => if_.else_branch.is_none() && has_let(&if_.cond),
        _ => false,
    }
}

/// Code on one line, and its beginning alone if it is long.
fn short(code: &str) -> String {
    let line = code.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(code: &str) -> Vec<String> {
        let mut names = Names::default();
        names.visit_file(&syn::parse_file(code).unwrap());
        mutants("x.rs", code, &names).unwrap().iter().map(Mutant::key).collect()
    }

    #[test]
    fn conditions_statements_operators_and_constants_are_mutated() {
        let code = "const LIMIT: u32 = 1 + 1;
            impl Door {
                fn open(&mut self, n: u32) -> Option<u32> {
                    if n > LIMIT && self.locked { return None; }
                    self.opened += 1;
                    Some(n)
                }
            }";
        let found = changes(code);
        for change in [
            "returns `None` at once",
            "`n > LIMIT && self.locked` becomes `false`",
            "`n > LIMIT && self.locked` becomes `n > LIMIT`",
            "`n > LIMIT` becomes `n >= LIMIT`",
            "`LIMIT` becomes `LIMIT * 2`",
            "without `return None;`",
            "without `self.opened += 1;`",
            "`self.opened += 1` becomes `self.opened -= 1`",
            "`Some(n)` becomes `None`",
        ] {
            assert!(found.contains(&format!("x.rs Door::open: {change}")), "{change} is not in {found:#?}");
        }
        assert!(
            !found.iter().any(|key| key.contains("1 + 1")),
            "no switch can be read at compile time: {found:#?}"
        );
    }

    #[test]
    fn arms_and_patterns_are_mutated_where_the_rest_still_matches() {
        let code = "fn f(n: u32) { match n { 1 => go(), 2 if ready() => stay(), _ => {} } }
            fn g(k: Kind) -> bool { matches!(k, Kind::A | Kind::B) }";
        let found = changes(code);
        for change in [
            "f: never matches `1`",
            "f: never matches `2 if ready()`",
            "f: `ready()` becomes `true`",
            "f: without `stay()`",
            "g: `matches!(k, Kind::A | Kind::B)` without `Kind::B`",
        ] {
            assert!(found.contains(&format!("x.rs {change}")), "{change} is not in {found:#?}");
        }
    }

    #[test]
    fn tests_and_texts_for_people_are_left_alone() {
        let code = "#[cfg(test)] mod tests { fn f() { g(); } }
            impl fmt::Display for Door { fn fmt(&self, f: &mut Formatter) -> fmt::Result { write(1 + 1) } }
            fn f() { tracing::debug!(\"{}\", 1 + 1); }";
        assert_eq!(changes(code), ["x.rs f: returns `nothing` at once"]);
    }
}
