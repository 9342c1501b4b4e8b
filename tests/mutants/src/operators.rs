//! Which change is made to which code.

use syn::{BinOp, GenericArgument, PathArguments, ReturnType, Type};

/// The operators that take the place of this one.
pub fn other_operators(operator: &BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["<=", ">="],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "<="],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Add(_) => &["-"],
        BinOp::Sub(_) | BinOp::Mul(_) => &["+"],
        BinOp::Div(_) | BinOp::Rem(_) => &["*"],
        BinOp::BitAnd(_) => &["|"],
        BinOp::BitOr(_) | BinOp::BitXor(_) => &["&"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::AddAssign(_) => &["-="],
        BinOp::SubAssign(_) | BinOp::MulAssign(_) => &["+="],
        BinOp::DivAssign(_) | BinOp::RemAssign(_) => &["*="],
        BinOp::BitAndAssign(_) => &["|="],
        BinOp::BitOrAssign(_) | BinOp::BitXorAssign(_) => &["&="],
        _ => &[],
    }
}

/// The method that takes the place of this one, with the same arguments.
pub fn other_method(name: &str) -> Option<&'static str> {
    Some(match name {
        "min" => "max",
        "max" => "min",
        "any" => "all",
        "all" => "any",
        "is_some" => "is_none",
        "is_none" => "is_some",
        "is_ok" => "is_err",
        "is_err" => "is_ok",
        "first" => "last",
        "last" => "first",
        "min_by_key" => "max_by_key",
        "max_by_key" => "min_by_key",
        "pop_front" => "pop_back",
        "push_front" => "push_back",
        "push_back" => "push_front",
        "saturating_sub" => "saturating_add",
        "saturating_add" => "saturating_sub",
        "is_ipv4" => "is_ipv6",
        "is_ipv6" => "is_ipv4",
        // The value that was taken is still there.
        "take" => "clone",
        _ => return None,
    })
}

/// Whether the call of this method may be left out, so that its receiver is the value.
pub fn may_be_left_out(name: &str) -> bool {
    matches!(name, "min" | "max" | "or" | "or_else" | "saturating_sub" | "saturating_add" | "to_canonical")
}

/// Whether a closure that this method is given returns a bool.
pub fn takes_predicate(name: &str) -> bool {
    matches!(
        name,
        "filter"
            | "any"
            | "all"
            | "is_some_and"
            | "is_none_or"
            | "is_ok_and"
            | "retain"
            | "find"
            | "position"
            | "take_while"
            | "skip_while"
            | "partition"
            | "take_if"
    )
}

/// Whether this method of a bool gives a value only where the bool is true.
pub fn asks_bool(name: &str) -> bool {
    matches!(name, "then" | "then_some")
}

/// The values that a function of this return type returns instead of its own.
pub fn other_results(output: &ReturnType) -> Vec<String> {
    match output {
        ReturnType::Default => vec![String::new()],
        ReturnType::Type(_, kind) => values(kind),
    }
}

fn values(kind: &Type) -> Vec<String> {
    let Type::Path(path) = kind else {
        return match kind {
            Type::Tuple(tuple) if tuple.elems.is_empty() => vec!["()".to_owned()],
            _ => Vec::new(),
        };
    };
    let Some(last) = path.path.segments.last() else { return Vec::new() };
    let all = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
    match last.ident.to_string().as_str() {
        "bool" => all(&["true", "false"]),
        name if is_integer(name) => all(&["0", "1"]),
        "Option" => all(&["None"]),
        "Vec" | "VecDeque" | "String" | "BTreeMap" | "BTreeSet" => all(&["Default::default()"]),
        "Duration" => all(&["std::time::Duration::ZERO"]),
        "Result" => {
            let PathArguments::AngleBracketed(arguments) = &last.arguments else { return Vec::new() };
            let Some(GenericArgument::Type(inner)) = arguments.args.first() else { return Vec::new() };
            values(inner).into_iter().map(|value| format!("Ok({value})")).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether `NAME * 2` and `NAME / 2` exist for a constant of this type.
pub fn is_quantity(kind: &Type) -> bool {
    let Type::Path(path) = kind else { return false };
    let Some(last) = path.path.segments.last() else { return false };
    is_integer(&last.ident.to_string()) || last.ident == "Duration"
}

fn is_integer(name: &str) -> bool {
    matches!(name, "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i32" | "i64")
}
