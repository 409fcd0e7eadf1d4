//! TypeScript: what is left of it, where things are, and what is refused.

use super::super::typescript::without_types;

/// What is left, with its spaces as they are.
fn left(source: &str) -> String {
    without_types("a.ts", source).unwrap_or_else(|defect| panic!("{source}: {defect}"))
}

#[test]
fn types_become_spaces_and_everything_else_stays_where_it_is() {
    for (source, expected) in [
        ("let a: number = 1", "let a         = 1"),
        ("let a!: number", "let a         "),
        ("f(a as any, b!, c satisfies T)", "f(a       , b , c            )"),
        ("f<T>(a); new C<T>(); g<U>`x`", "f   (a); new C   (); g   `x`"),
        (
            "function f<T>(this: T, a?: T, ...b: T[]): a is T {}",
            "function f   (         a    , ...b     )         {}",
        ),
        (
            "const f = async <T,>(a: T): Promise<T> => a",
            "const f = async     (a   )             => a",
        ),
        ("import type { A } from './a'; x", ";                             x"),
        ("import { type A, b, type C } from './a'", "import {         b,        } from './a'"),
        ("export type { A }; export { type B, c }", ";                  export {         c }"),
        ("export type A = {\n  b: 1 };\nx", ";                \n         \nx"),
        (
            "export interface A<T> extends B { c(): void }",
            ";                                           ",
        ),
        ("declare const a: number; b", ";                        b"),
        ("export declare function a(): void; b", ";                                  b"),
        ("function a(): void; function a(b?: 1) {}", ";                   function a(b    ) {}"),
        ("try {} catch (e: unknown) {}", "try {} catch (e         ) {}"),
        (
            "abstract class A<T> extends B<T> implements C, D<T> { private readonly x: T = 1; y?: 1; z!: 2; static #w: T; [k: string]: T; declare q: 1; abstract m(): T; protected async n?(): T {} }",
            "         class A    extends B                       { ;                x    = 1; y    ; z    ; static #w   ; ;               ;             ;                ;         async n ()    {} }",
        ),
    ] {
        let left = left(source);
        assert_eq!(left.trim_end(), expected.trim_end(), "{source}");
        assert_eq!(left.chars().count(), source.chars().count(), "{source}");
    }
}

#[test]
fn a_type_that_ends_a_line_does_not_change_what_the_next_one_means() {
    // Without the semicolon the value would be called.
    assert_eq!(left("const a = b as any\n(c)"), "const a = b;      \n(c)");
    assert_eq!(left("const a = 1\ntype B = 2\n[3].map(f)"), "const a = 1\n;         \n[3].map(f)");
    assert_eq!(left("const f = (a: 1): {\n  b: 1\n} => a"), "const f = (a       \n      \n) => a");
    assert_eq!(left("const f = async <\nT>(a: T) => a"), "const f = async (\n   a   ) => a");
    // Two bytes, one column.
    assert_eq!(left("f(/* é */ a as 'ü', b)"), "f(/* é */ a       , b)");
}

#[test]
fn what_is_more_than_a_type_is_refused_with_its_place() {
    for (source, told) in [
        ("\n  enum A { b }", "a.ts:2:3: an enum is more than a type"),
        ("export enum A { b }", "a.ts:1:8: an enum is more than a type"),
        ("namespace A { export const b = 1 }", "a.ts:1:1: a namespace is more than a type"),
        ("class A { constructor(private b: 1) {} }", "a.ts:1:23: a parameter property is more"),
        ("const a = <any>b", "a.ts:1:11: a type in angle brackets cannot be taken out"),
        ("import a = require('a')", "a.ts:1:1: import = is no ES module"),
        ("@b class A {}", "a.ts:1:1: decorators are not supported"),
        ("const a: = 1", "a.ts:1:10: "),
        ("let a: Array<string = []", "a.ts:1:"),
    ] {
        let defect = without_types("a.ts", source).unwrap_err().to_string();
        assert!(defect.starts_with(told), "{source}: {defect}");
    }
    let told = without_types("a.ts", "const x = 1;\nenum A { b }").unwrap_err().to_string();
    assert!(told.ends_with(", in `enum A { b }`"), "{told}");
}
