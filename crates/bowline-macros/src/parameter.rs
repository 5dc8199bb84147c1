//! Parses the parameters of a function: arguments of the request, and extractors.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Error, Expr, FnArg, Ident, LitStr, Pat, PatType, Path, Result, Type};

use crate::docs;
use crate::options::{AttributeKind, ident_name, nearest, text};

/// One parameter of a function.
pub(crate) enum Parameter {
    /// An argument of the request.
    Argument(Box<Argument>),
    /// An extractor, such as `Context` or `State<_>`.
    Extractor(Box<Type>),
}

/// An argument, which becomes a field of the arguments type.
pub(crate) struct Argument {
    name: Ident,
    ty: Type,
    /// The attributes of the field: doc comments, `serde` and `schemars`.
    attributes: Vec<Attribute>,
    default: ArgumentDefault,
    renamed: Option<LitStr>,
    header: Option<LitStr>,
}

/// The default of an argument that is missing from the request.
enum ArgumentDefault {
    None,
    OfType,
    Value(Box<Expr>),
}

/// Parses the parameters, in order, and removes their attributes, which only the macro understands.
pub(crate) fn read<'a>(inputs: impl Iterator<Item = &'a mut FnArg>) -> Result<Vec<Parameter>> {
    let mut parameters = Vec::new();
    let mut errors: Option<Error> = None;
    for input in inputs {
        let FnArg::Typed(input) = input else {
            continue;
        };
        match Parameter::read(input) {
            Ok(parameter) => parameters.push(parameter),
            Err(error) => match &mut errors {
                Some(errors) => errors.combine(error),
                None => errors = Some(error),
            },
        }
    }
    match errors {
        Some(errors) => Err(errors),
        None => reject_mixed_arguments(parameters),
    }
}

impl Parameter {
    fn read(input: &mut PatType) -> Result<Self> {
        let attributes = std::mem::take(&mut input.attrs);
        let options = ParameterOptions::read(attributes)?;
        let is_extractor = match options.kind {
            Some(kind) => kind == ParameterKind::Extractor,
            None => has_extractor_name(&input.ty) || is_extractor_pattern(&input.pat),
        };
        if is_extractor {
            return Ok(Self::Extractor(input.ty.clone()));
        }
        Argument::read(input, options).map(|argument| Self::Argument(Box::new(argument)))
    }
}

impl Argument {
    fn read(input: &PatType, options: ParameterOptions) -> Result<Self> {
        let Pat::Ident(name) = &*input.pat else {
            let why = "expected an identifier, which becomes the name of the argument; for an extractor of another \
                       crate put `#[tool(extractor)]` on the parameter";
            return Err(Error::new_spanned(&input.pat, why));
        };
        if let Type::Reference(reference) = &*input.ty {
            let why = "parameters must be owned: `String` instead of `&str`, `Context` instead of `&Context`";
            return Err(Error::new_spanned(reference, why));
        }
        if last_segment(&input.ty).is_some_and(|name| name == "Caller") {
            return Err(Error::new(
                input.ty.span(),
                "use `Arc<Caller>` instead of `Caller`",
            ));
        }
        Ok(Self {
            name: name.ident.clone(),
            ty: (*input.ty).clone(),
            attributes: options.field_attributes,
            default: options.default,
            renamed: options.renamed,
            header: options.header,
        })
    }

    fn field(&self) -> TokenStream {
        let Self {
            name,
            ty,
            attributes,
            header,
            ..
        } = self;
        let ty = match self.is_plain() {
            true => self.type_parameter().into_token_stream(),
            false => ty.into_token_stream(),
        };
        let default = match &self.default {
            ArgumentDefault::None => None,
            ArgumentDefault::OfType => Some(quote!(#[serde(default)])),
            ArgumentDefault::Value(_) => {
                let function = self.default_name().to_string();
                Some(quote!(#[serde(default = #function)]))
            }
        };
        let renamed = self.renamed();
        let renamed = renamed.iter();
        let header = header.iter();
        quote! {
            #(#attributes)*
            #default
            #(#[serde(rename = #renamed)])*
            #(#[schemars(extend("x-mcp-header" = #header))])*
            #name: #ty
        }
    }

    /// Returns the name in requests if it differs from the identifier: the leading underscore of an unused parameter is
    /// removed.
    fn renamed(&self) -> Option<String> {
        if let Some(renamed) = &self.renamed {
            return Some(renamed.value());
        }
        let name = ident_name(&self.name);
        let used = name.trim_start_matches('_');
        (used != name && !used.is_empty()).then(|| used.to_owned())
    }

    /// Returns whether no attribute changes how the type is deserialized or described.
    fn is_plain(&self) -> bool {
        let has_default = !matches!(self.default, ArgumentDefault::None);
        !has_default && self.attributes.iter().all(docs::is_doc)
    }

    fn type_parameter(&self) -> Ident {
        format_ident!("__{}", ident_name(&self.name))
    }

    fn default_function(&self) -> Option<TokenStream> {
        let ArgumentDefault::Value(value) = &self.default else {
            return None;
        };
        let (function, ty) = (self.default_name(), &self.ty);
        Some(quote! {
            fn #function() -> #ty {
                #value
            }
        })
    }

    fn default_name(&self) -> Ident {
        format_ident!("default_{}", self.name)
    }
}

/// Returns the definition of the arguments type `name` and the functions for its defaults; empty without arguments.
pub(crate) fn arguments_type(
    name: &Ident,
    parameters: &[Parameter],
    bowline: &Path,
) -> TokenStream {
    let arguments: Vec<_> = arguments(parameters).collect();
    if arguments.is_empty() {
        return TokenStream::new();
    }
    // Each plain field has a type parameter, so that the derives demand nothing of its type: a missing trait is
    // reported by `is_argument`, and not at each use in the code that they generate.
    let plain = arguments.iter().filter(|argument| argument.is_plain());
    let generics = plain.clone().map(|argument| {
        let (parameter, ty) = (argument.type_parameter(), &argument.ty);
        quote!(#parameter = #ty)
    });
    let fields = arguments.iter().map(|argument| argument.field());
    let defaults = arguments
        .iter()
        .filter_map(|argument| argument.default_function());
    let checks =
        plain.map(|Argument { ty, .. }| quote_spanned!(ty.span()=> is_argument::<#ty, _>();));
    let schema_name = name.to_string();
    let serde = quote!(#bowline::serde).to_string();
    let schemars = quote!(#bowline::schemars).to_string();
    quote! {
        #[allow(non_camel_case_types, reason = "a type parameter has the name of its field")]
        #[derive(#bowline::serde::Deserialize, #bowline::schemars::JsonSchema)]
        #[serde(crate = #serde)]
        #[schemars(crate = #schemars, rename = #schema_name)]
        struct #name<#(#generics),*> {
            #(#fields,)*
        }
        #(#defaults)*
        const _: fn() = || {
            fn is_argument<T: #bowline::server::Argument<M>, M>() {}
            #(#checks)*
        };
    }
}

/// Returns the parameters of the closure that calls the function: first the arguments, destructured.
pub(crate) fn closure(name: &Ident, parameters: &[Parameter], bowline: &Path) -> TokenStream {
    let positions = parameters.iter().enumerate();
    let arguments: Vec<_> = positions
        .filter_map(|(position, parameter)| match parameter {
            Parameter::Argument(argument) => {
                let (field, binding) = (&argument.name, binding(position));
                Some(quote!(#field: #binding))
            }
            Parameter::Extractor(_) => None,
        })
        .collect();
    let arguments = (!arguments.is_empty())
        .then(|| quote!(#bowline::Args(#name { #(#arguments),* }): #bowline::Args<#name>,));
    let extractors = parameters
        .iter()
        .enumerate()
        .filter_map(|(position, parameter)| {
            let Parameter::Extractor(ty) = parameter else {
                return None;
            };
            let name = binding(position);
            Some(quote!(#name: #ty,))
        });
    quote!(#arguments #(#extractors)*)
}

/// Returns the names of the arguments in requests, and their spans.
pub(crate) fn names(parameters: &[Parameter]) -> impl Iterator<Item = (String, Span)> {
    arguments(parameters).map(|argument| {
        let renamed = argument.renamed();
        let name = renamed.unwrap_or_else(|| ident_name(&argument.name));
        (name, argument.name.span())
    })
}

fn has_arguments(parameters: &[Parameter]) -> bool {
    arguments(parameters).next().is_some()
}

fn arguments(parameters: &[Parameter]) -> impl Iterator<Item = &Argument> {
    parameters.iter().filter_map(|parameter| match parameter {
        Parameter::Argument(argument) => Some(&**argument),
        Parameter::Extractor(_) => None,
    })
}

/// Returns the name of a parameter where the function is called. It is not its own name, because a parameter may have
/// the name of the function, and would shadow it.
pub(crate) fn binding(position: usize) -> Ident {
    format_ident!("parameter_{position}")
}

fn reject_mixed_arguments(parameters: Vec<Parameter>) -> Result<Vec<Parameter>> {
    let mut args = parameters.iter().filter_map(|parameter| match parameter {
        Parameter::Extractor(ty) if last_segment(ty).is_some_and(|name| name == "Args") => Some(ty),
        _ => None,
    });
    let (first, second) = (args.next(), args.next());
    if let Some(second) = second {
        let why = "use one `Args<_>` with the fields of both";
        return Err(Error::new_spanned(second, why));
    }
    if let Some(args) = first.filter(|_| has_arguments(&parameters)) {
        let why = "use either plain parameters or one `Args<_>`, not both";
        return Err(Error::new_spanned(args, why));
    }
    Ok(parameters)
}

/// Returns whether a pattern is that of an extractor, such as `State(x)`: its type may have an alias.
fn is_extractor_pattern(pattern: &Pat) -> bool {
    let Pat::TupleStruct(pattern) = pattern else {
        return false;
    };
    let last = pattern.path.segments.last();
    last.is_some_and(|last| {
        ["Args", "State", "Extension"]
            .iter()
            .any(|name| last.ident == name)
    })
}

/// Returns whether a type has the name of an extractor.
fn has_extractor_name(ty: &Type) -> bool {
    let Type::Path(path) = ty else {
        return false;
    };
    let Some(last) = path.path.segments.last() else {
        return false;
    };
    match last.ident.to_string().as_str() {
        "Context" | "Json" | "Meta" | "Principal" | "RequestedUri" | "CompletionInput" => {
            last.arguments.is_none()
        }
        "Args" | "State" | "Extension" => !last.arguments.is_none(),
        "Arc" => has_type_argument(&last.arguments, |inner| {
            last_segment(inner).is_some_and(|name| name == "Caller")
        }),
        "Option" => has_type_argument(&last.arguments, |inner| {
            last_segment(inner).is_some_and(|name| name == "Extension")
        }),
        _ => false,
    }
}

fn has_type_argument(arguments: &syn::PathArguments, is: impl Fn(&Type) -> bool) -> bool {
    let syn::PathArguments::AngleBracketed(arguments) = arguments else {
        return false;
    };
    arguments
        .args
        .iter()
        .any(|argument| matches!(argument, syn::GenericArgument::Type(ty) if is(ty)))
}

fn last_segment(ty: &Type) -> Option<&Ident> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|segment| &segment.ident),
        _ => None,
    }
}

/// The attributes of one parameter.
struct ParameterOptions {
    kind: Option<ParameterKind>,
    field_attributes: Vec<Attribute>,
    default: ArgumentDefault,
    renamed: Option<LitStr>,
    header: Option<LitStr>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ParameterKind {
    Argument,
    Extractor,
}

impl ParameterOptions {
    fn read(attributes: Vec<Attribute>) -> Result<Self> {
        let mut options = Self {
            kind: None,
            field_attributes: Vec::new(),
            default: ArgumentDefault::None,
            renamed: None,
            header: None,
        };
        for attribute in attributes {
            let path = attribute.path();
            if path.is_ident("header") {
                options.header = Some(attribute.parse_args()?);
            } else if AttributeKind::of(path).is_some() {
                options.read_tool_options(&attribute)?;
            } else if docs::is_doc(&attribute)
                || path.is_ident("serde")
                || path.is_ident("schemars")
            {
                options.field_attributes.push(attribute);
            } else {
                let why = "expected a doc comment, `#[tool(…)]`, `#[header(\"…\")]`, `#[serde(…)]` or \
                           `#[schemars(…)]`";
                return Err(Error::new_spanned(&attribute, why));
            }
        }
        Ok(options)
    }

    fn read_tool_options(&mut self, attribute: &Attribute) -> Result<()> {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("default") {
                self.default = match meta.value() {
                    Ok(value) => ArgumentDefault::Value(value.parse()?),
                    Err(_) => ArgumentDefault::OfType,
                };
            } else if meta.path.is_ident("name") {
                self.renamed = Some(text(&meta)?);
            } else if meta.path.is_ident("extractor") {
                self.kind = Some(ParameterKind::Extractor);
            } else if meta.path.is_ident("argument") {
                self.kind = Some(ParameterKind::Argument);
            } else {
                let known = ["default", "name", "argument", "extractor"];
                return Err(nearest(&meta, &known));
            }
            Ok(())
        })
    }
}
