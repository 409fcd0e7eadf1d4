//! TypeScript without its types: each is replaced by as many spaces, so that lines and columns stay what they were.
//!
//! Only what can be taken out is taken out. What would have to become other JavaScript (enums, namespaces, parameter
//! properties, decorators) is refused, with its place. Types are not checked: that is an editor's business.

use oxc_allocator::Allocator;
use oxc_ast::ast::{
    AccessorProperty, ArrowFunctionExpression, Class, Declaration, Decorator, ExportAllDeclaration,
    ExportDefaultDeclaration, ExportDefaultDeclarationKind, ExportNamedDeclaration,
    ExportSpecifier, FormalParameter, Function, ImportDeclaration, ImportOrExportKind,
    ImportSpecifier, MethodDefinition, MethodDefinitionType, PropertyDefinition,
    PropertyDefinitionType, TSAsExpression, TSEnumDeclaration, TSExportAssignment,
    TSGlobalDeclaration, TSImportEqualsDeclaration, TSIndexSignature, TSInstantiationExpression,
    TSInterfaceDeclaration, TSModuleDeclaration, TSNamespaceExportDeclaration, TSNonNullExpression,
    TSSatisfiesExpression, TSThisParameter, TSTypeAliasDeclaration, TSTypeAnnotation,
    TSTypeAssertion, TSTypeParameterDeclaration, TSTypeParameterInstantiation, VariableDeclaration,
    VariableDeclarator,
};
use oxc_ast_visit::{Visit, walk};
use oxc_parser::Parser;
use oxc_span::{GetSpan as _, SourceType, Span};
use oxc_syntax::scope::ScopeFlags;

use super::compile::{ScriptDefect, place_of};

const MODIFIERS: &[&str] =
    &["private", "protected", "public", "readonly", "override", "declare", "abstract"];

/// The JavaScript that a TypeScript file is without its types.
pub(super) fn without_types(file: &str, source: &str) -> Result<String, ScriptDefect> {
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, source, SourceType::ts().with_module(true)).parse();
    if let Some(wrong) = parsed.diagnostics.first() {
        let label = wrong.labels.iter().next();
        let offset = label.map(|label| label.offset() as usize).unwrap_or_default();
        return Err(defect(file, source, offset, &wrong.message));
    }
    let mut types =
        Types { source, is_type: vec![false; source.len()], written: Vec::new(), refused: None };
    types.visit_program(&parsed.program);
    match types.refused {
        Some((offset, why)) => Err(defect(file, source, offset, why)),
        None => Ok(types.blanked()),
    }
}

fn defect(file: &str, source: &str, offset: usize, why: &str) -> ScriptDefect {
    let (line, column) = place_of(source, offset);
    ScriptDefect::new(file, why).at(source, line, column)
}

/// Which bytes of a file are types.
struct Types<'s> {
    source: &'s str,
    is_type: Vec<bool>,
    /// What is written over them.
    written: Vec<(usize, char)>,
    /// The first thing that is more than a type.
    refused: Option<(usize, &'static str)>,
}

impl Types<'_> {
    fn blanked(mut self) -> String {
        self.written.sort_unstable();
        let characters = self.source.char_indices().map(|(at, character)| {
            match self.written.binary_search_by_key(&at, |(place, _)| *place) {
                Ok(found) => self.written.get(found).map_or(character, |(_, written)| *written),
                Err(_) if !self.is_type.get(at).copied().unwrap_or(false) => character,
                Err(_) if matches!(character, '\n' | '\r' | '\u{2028}' | '\u{2029}') => character,
                Err(_) => ' ',
            }
        });
        characters.collect()
    }

    fn blank(&mut self, start: usize, end: usize) {
        if let Some(range) = self.is_type.get_mut(start..end) {
            range.fill(true);
        }
    }

    fn blank_span(&mut self, span: Span) {
        self.blank(span.start as usize, span.end as usize);
    }

    /// A statement or a member of a class. What stands before it may rely on it to have ended.
    fn blank_whole(&mut self, span: Span) {
        self.blank_span(span);
        self.written.push((span.start as usize, ';'));
    }

    fn refuse(&mut self, span: Span, why: &'static str) {
        self.refused.get_or_insert((span.start as usize, why));
    }

    /// The words and signs between two offsets, without comments.
    fn tokens(&self, start: usize, end: usize) -> Vec<(usize, &str)> {
        let mut tokens = Vec::new();
        let mut at = start;
        while let Some(rest) = self.source.get(at..end).filter(|rest| !rest.is_empty()) {
            let length = if rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                rest.find("*/").map_or(rest.len(), |end| end.saturating_add(2))
            } else {
                let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$' || c == '#';
                let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                let length = word.max(rest.chars().next().map_or(1, char::len_utf8));
                let token = rest.get(..length).unwrap_or_default();
                if !token.trim().is_empty() {
                    tokens.push((at, token));
                }
                length
            };
            at = at.saturating_add(length);
        }
        tokens
    }

    /// Blank the first of this between two offsets.
    fn blank_token(&mut self, start: u32, end: u32, wanted: &str) -> Option<usize> {
        let found = self.tokens(start as usize, end as usize);
        let at = found.into_iter().find(|(_, token)| *token == wanted)?.0;
        self.blank(at, at.saturating_add(wanted.len()));
        Some(at)
    }

    /// A part of a list, and the comma after it.
    fn blank_in_list(&mut self, span: Span) {
        self.blank_span(span);
        let end = span.end as usize;
        let next = self.tokens(end, self.source.len().min(end.saturating_add(1_000)));
        if let Some((at, ",")) = next.first().copied() {
            self.blank(at, at.saturating_add(1));
        }
    }

    /// What stands before a member's name and is no JavaScript.
    fn blank_modifiers(&mut self, member: Span, key: Span) {
        let tokens = self.tokens(member.start as usize, key.start as usize);
        let modifiers: Vec<(usize, usize)> = tokens
            .into_iter()
            .filter(|(_, token)| MODIFIERS.contains(token))
            .map(|(at, token)| (at, at.saturating_add(token.len())))
            .collect();
        for (start, end) in modifiers {
            self.blank(start, end);
            // A field before it may rely on it to have ended.
            if start == member.start as usize {
                self.written.push((start, ';'));
            }
        }
    }

    /// `x as T`: what comes after the value. The next line must not continue the value in its place.
    fn blank_after(&mut self, value: Span, whole: Span) {
        let (start, end) = (value.end as usize, whole.end as usize);
        self.blank(start, end);
        let next = self.source.get(end..).unwrap_or_default();
        let after = next.trim_start();
        let gap = next.len().saturating_sub(after.len());
        let is_next_line = next.get(..gap).is_some_and(|gap| gap.contains('\n'));
        if is_next_line && after.starts_with(['(', '[', '`']) {
            self.written.push((start, ';'));
        }
    }

    fn has_line_end(&self, start: usize, end: usize) -> bool {
        self.source
            .get(start..end)
            .is_some_and(|text| text.contains(['\n', '\u{2028}', '\u{2029}']))
    }
}

impl<'a> Visit<'a> for Types<'_> {
    fn visit_ts_type_annotation(&mut self, it: &TSTypeAnnotation<'a>) {
        self.blank_span(it.span);
    }

    fn visit_ts_type_parameter_declaration(&mut self, it: &TSTypeParameterDeclaration<'a>) {
        self.blank_span(it.span);
    }

    fn visit_ts_type_parameter_instantiation(&mut self, it: &TSTypeParameterInstantiation<'a>) {
        self.blank_span(it.span);
    }

    fn visit_ts_type_alias_declaration(&mut self, it: &TSTypeAliasDeclaration<'a>) {
        self.blank_whole(it.span);
    }

    fn visit_ts_interface_declaration(&mut self, it: &TSInterfaceDeclaration<'a>) {
        self.blank_whole(it.span);
    }

    fn visit_ts_index_signature(&mut self, it: &TSIndexSignature<'a>) {
        self.blank_whole(it.span);
    }

    fn visit_ts_this_parameter(&mut self, it: &TSThisParameter<'a>) {
        self.blank_in_list(it.span);
    }

    fn visit_ts_as_expression(&mut self, it: &TSAsExpression<'a>) {
        self.blank_after(it.expression.span(), it.span);
        self.visit_expression(&it.expression);
    }

    fn visit_ts_satisfies_expression(&mut self, it: &TSSatisfiesExpression<'a>) {
        self.blank_after(it.expression.span(), it.span);
        self.visit_expression(&it.expression);
    }

    fn visit_ts_non_null_expression(&mut self, it: &TSNonNullExpression<'a>) {
        self.blank(it.expression.span().end as usize, it.span.end as usize);
        self.visit_expression(&it.expression);
    }

    fn visit_ts_instantiation_expression(&mut self, it: &TSInstantiationExpression<'a>) {
        self.blank_after(it.expression.span(), it.span);
        self.visit_expression(&it.expression);
    }

    fn visit_ts_type_assertion(&mut self, it: &TSTypeAssertion<'a>) {
        self.refuse(it.span, "a type in angle brackets cannot be taken out: write value as Type");
    }

    fn visit_ts_enum_declaration(&mut self, it: &TSEnumDeclaration<'a>) {
        if it.declare {
            return self.blank_whole(it.span);
        }
        self.refuse(it.span, "an enum is more than a type: write an object, and as const");
    }

    fn visit_ts_module_declaration(&mut self, it: &TSModuleDeclaration<'a>) {
        if it.declare {
            return self.blank_whole(it.span);
        }
        self.refuse(it.span, "a namespace is more than a type: write a file, and import it");
    }

    fn visit_ts_global_declaration(&mut self, it: &TSGlobalDeclaration<'a>) {
        self.blank_whole(it.span);
    }

    fn visit_ts_import_equals_declaration(&mut self, it: &TSImportEqualsDeclaration<'a>) {
        self.refuse(it.span, "import = is no ES module: write import … from");
    }

    fn visit_ts_export_assignment(&mut self, it: &TSExportAssignment<'a>) {
        self.refuse(it.span, "export = is no ES module: write export default");
    }

    fn visit_ts_namespace_export_declaration(&mut self, it: &TSNamespaceExportDeclaration<'a>) {
        self.blank_whole(it.span);
    }

    fn visit_decorator(&mut self, it: &Decorator<'a>) {
        self.refuse(it.span, "decorators are not supported: call a function instead");
    }

    fn visit_import_declaration(&mut self, it: &ImportDeclaration<'a>) {
        if it.import_kind == ImportOrExportKind::Type {
            return self.blank_whole(it.span);
        }
        walk::walk_import_declaration(self, it);
    }

    fn visit_import_specifier(&mut self, it: &ImportSpecifier<'a>) {
        if it.import_kind == ImportOrExportKind::Type {
            self.blank_in_list(it.span);
        }
    }

    fn visit_export_named_declaration(&mut self, it: &ExportNamedDeclaration<'a>) {
        let is_type = it.export_kind == ImportOrExportKind::Type
            || it.declaration.as_ref().is_some_and(is_taken_out);
        if is_type {
            return self.blank_whole(it.span);
        }
        walk::walk_export_named_declaration(self, it);
    }

    fn visit_export_default_declaration(&mut self, it: &ExportDefaultDeclaration<'a>) {
        let is_type = match &it.declaration {
            ExportDefaultDeclarationKind::TSInterfaceDeclaration(_) => true,
            ExportDefaultDeclarationKind::FunctionDeclaration(function) => function.body.is_none(),
            _ => false,
        };
        if is_type {
            return self.blank_whole(it.span);
        }
        walk::walk_export_default_declaration(self, it);
    }

    fn visit_export_all_declaration(&mut self, it: &ExportAllDeclaration<'a>) {
        if it.export_kind == ImportOrExportKind::Type {
            self.blank_whole(it.span);
        }
    }

    fn visit_export_specifier(&mut self, it: &ExportSpecifier<'a>) {
        if it.export_kind == ImportOrExportKind::Type {
            self.blank_in_list(it.span);
        }
    }

    fn visit_variable_declaration(&mut self, it: &VariableDeclaration<'a>) {
        if it.declare {
            return self.blank_whole(it.span);
        }
        walk::walk_variable_declaration(self, it);
    }

    fn visit_variable_declarator(&mut self, it: &VariableDeclarator<'a>) {
        if it.definite
            && let Some(annotation) = &it.type_annotation
        {
            self.blank(it.id.span().end as usize, annotation.span.start as usize);
        }
        walk::walk_variable_declarator(self, it);
    }

    fn visit_function(&mut self, it: &Function<'a>, flags: ScopeFlags) {
        // An overload, or one that is somewhere else.
        if it.body.is_none() || it.declare {
            return self.blank_whole(it.span);
        }
        walk::walk_function(self, it, flags);
    }

    fn visit_formal_parameter(&mut self, it: &FormalParameter<'a>) {
        if it.accessibility.is_some() || it.readonly || it.r#override {
            self.refuse(
                it.span,
                "a parameter property is more than a type: assign it in the constructor",
            );
        }
        if it.optional {
            self.blank_token(it.pattern.span().end, it.span.end, "?");
        }
        walk::walk_formal_parameter(self, it);
    }

    fn visit_arrow_function_expression(&mut self, it: &ArrowFunctionExpression<'a>) {
        walk::walk_arrow_function_expression(self, it);
        // No line may end between `)` and `=>`, nor between `async` and `(`: so the bracket moves.
        if let Some(returned) = &it.return_type {
            let (start, end) = (it.params.span.end as usize, returned.span.end as usize);
            if self.has_line_end(start, end) {
                self.blank(start.saturating_sub(1), end);
                let last = self.source.get(..end).and_then(|text| text.char_indices().next_back());
                self.written.extend(last.map(|(at, _)| (at, ')')));
            }
        }
        if let Some(parameters) = &it.type_parameters {
            let (start, end) = (parameters.span.start as usize, it.params.span.start as usize);
            if it.r#async && self.has_line_end(start, end) {
                self.blank(start, end.saturating_add(1));
                self.written.push((start, '('));
            }
        }
    }

    fn visit_class(&mut self, it: &Class<'a>) {
        if it.declare {
            return self.blank_whole(it.span);
        }
        if it.r#abstract {
            self.blank_token(it.span.start, it.body.span.start, "abstract");
        }
        if let (Some(first), Some(last)) = (it.implements.first(), it.implements.last()) {
            let before = [
                it.id.as_ref().map(|id| id.span.end),
                it.type_parameters.as_ref().map(|parameters| parameters.span.end),
                it.super_class.as_ref().map(|class| class.span().end),
                it.super_type_arguments.as_ref().map(|arguments| arguments.span.end),
            ];
            let before = before.into_iter().flatten().max().unwrap_or(it.span.start);
            if let Some(at) = self.blank_token(before, first.span.start, "implements") {
                self.blank(at, last.span.end as usize);
            }
        }
        self.visit_decorators(&it.decorators);
        if let Some(parameters) = &it.type_parameters {
            self.visit_ts_type_parameter_declaration(parameters);
        }
        if let Some(class) = &it.super_class {
            self.visit_expression(class);
        }
        if let Some(arguments) = &it.super_type_arguments {
            self.visit_ts_type_parameter_instantiation(arguments);
        }
        self.visit_class_body(&it.body);
    }

    fn visit_method_definition(&mut self, it: &MethodDefinition<'a>) {
        let is_abstract = it.r#type == MethodDefinitionType::TSAbstractMethodDefinition;
        if is_abstract || it.value.body.is_none() {
            return self.blank_whole(it.span);
        }
        self.blank_modifiers(it.span, it.key.span());
        if it.optional {
            self.blank_token(it.key.span().end, it.value.span.start, "?");
        }
        walk::walk_method_definition(self, it);
    }

    fn visit_property_definition(&mut self, it: &PropertyDefinition<'a>) {
        let is_abstract = it.r#type == PropertyDefinitionType::TSAbstractPropertyDefinition;
        if is_abstract || it.declare {
            return self.blank_whole(it.span);
        }
        self.blank_modifiers(it.span, it.key.span());
        if it.optional || it.definite {
            let sign = if it.optional { "?" } else { "!" };
            self.blank_token(it.key.span().end, it.span.end, sign);
        }
        walk::walk_property_definition(self, it);
    }

    fn visit_accessor_property(&mut self, it: &AccessorProperty<'a>) {
        self.refuse(it.span, "accessor is not supported: write get and set");
    }
}

/// A declaration of which nothing is left.
fn is_taken_out(declaration: &Declaration<'_>) -> bool {
    match declaration {
        Declaration::TSTypeAliasDeclaration(_)
        | Declaration::TSInterfaceDeclaration(_)
        | Declaration::TSGlobalDeclaration(_) => true,
        Declaration::VariableDeclaration(it) => it.declare,
        Declaration::FunctionDeclaration(it) => it.declare || it.body.is_none(),
        Declaration::ClassDeclaration(it) => it.declare,
        Declaration::TSEnumDeclaration(it) => it.declare,
        Declaration::TSModuleDeclaration(it) => it.declare,
        Declaration::TSImportEqualsDeclaration(_) => false,
    }
}
