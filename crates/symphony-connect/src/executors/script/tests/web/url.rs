//! `URL` and `URLSearchParams`: inputs and what the URL Standard's rules make of them.

use super::{all_are, each_is};

/// A URL, its base if it has one, and its href; `None` where the standard fails.
const HREFS: &[(&str, Option<&str>, Option<&str>)] = &[
    ("http://example.com", None, Some("http://example.com/")),
    ("  HTTPS://EXAMPLE.com:443/a  ", None, Some("https://example.com/a")),
    ("http://example.com:80/", None, Some("http://example.com/")),
    ("http://example.com:8080", None, Some("http://example.com:8080/")),
    ("http://example.com:65536/", None, None),
    ("http://example.com:/x", None, Some("http://example.com/x")),
    ("http://user:pa%20ss@host/", None, Some("http://user:pa%20ss@host/")),
    ("http://a b@host/", None, Some("http://a%20b@host/")),
    ("http://ex ample.com/", None, None),
    ("http://a<b/", None, None),
    ("http:///example.com/x", None, Some("http://example.com/x")),
    ("http:example.com", None, Some("http://example.com/")),
    ("http://", None, None),
    ("//host/x", None, None),
    ("/x", None, None),
    ("", None, None),
    ("http://0x7f.1/", None, Some("http://127.0.0.1/")),
    ("http://2130706433/", None, Some("http://127.0.0.1/")),
    ("http://192.168.257/", None, Some("http://192.168.1.1/")),
    ("http://256.0.0.1/", None, None),
    ("http://1.2.3.4.5/", None, None),
    ("http://[::1]:80/", None, Some("http://[::1]/")),
    ("http://[2001:DB8::0:1]/", None, Some("http://[2001:db8::1]/")),
    ("http://[::127.0.0.1]/", None, Some("http://[::7f00:1]/")),
    ("http://[::1", None, None),
    ("http://bücher.example/", None, Some("http://xn--bcher-kva.example/")),
    ("http://EXAMPLE%2eCOM/", None, Some("http://example.com/")),
    ("http://ex%00ample/", None, None),
    ("http://h/a/./b/../c", None, Some("http://h/a/c")),
    ("http://h/a/%2e%2E/b", None, Some("http://h/b")),
    ("http://h/../../x", None, Some("http://h/x")),
    ("http://h\\a\\b", None, Some("http://h/a/b")),
    ("http://h/ü?ü#ü", None, Some("http://h/%C3%BC?%C3%BC#%C3%BC")),
    ("http://h/a b?c d'#e f`", None, Some("http://h/a%20b?c%20d%27#e%20f%60")),
    ("http://h/%zz", None, Some("http://h/%zz")),
    ("ht\ntp://h/a\tb", None, Some("http://h/ab")),
    ("mailto:a@example.com", None, Some("mailto:a@example.com")),
    ("data:text/plain,a b?c", None, Some("data:text/plain,a b?c")),
    ("javascript:alert(1)", None, Some("javascript:alert(1)")),
    ("foo://///////", None, Some("foo://///////")),
    ("foo://HOST/%41", None, Some("foo://HOST/%41")),
    ("file:///C:/x", None, Some("file:///C:/x")),
    ("file:c:\\foo\\bar", None, Some("file:///c:/foo/bar")),
    ("1http://h", None, None),
    ("x", Some("http://h/a/b?q#f"), Some("http://h/a/x")),
    ("../x", Some("http://h/a/b/c"), Some("http://h/a/x")),
    ("/x", Some("http://h/a"), Some("http://h/x")),
    ("//other/x", Some("https://h/a"), Some("https://other/x")),
    ("?p", Some("http://h/a?q#f"), Some("http://h/a?p")),
    ("#g", Some("http://h/a?q#f"), Some("http://h/a?q#g")),
    ("", Some("http://h/a?q#f"), Some("http://h/a?q")),
    ("http:x", Some("http://h/a/b"), Some("http://h/a/x")),
    ("http://other", Some("no base"), None),
    ("x", Some("mailto:a@b"), None),
    ("#x", Some("mailto:a@b"), Some("mailto:a@b#x")),
];

#[tokio::test]
async fn hrefs_are_those_of_the_standard() {
    let mut cases = Vec::new();
    for (url, base, href) in HREFS {
        let quoted = |text: &str| serde_json::to_string(text).unwrap();
        let arguments =
            base.map_or_else(|| quoted(url), |base| format!("{}, {}", quoted(url), quoted(base)));
        let expected = href.map_or_else(|| quoted("TypeError"), quoted);
        cases.push((format!("new URL({arguments}).href"), expected));
        cases.push((format!("URL.canParse({arguments})"), href.is_some().to_string()));
    }
    let cases: Vec<_> = cases.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    all_are(&cases).await;
}

#[tokio::test]
async fn a_url_has_its_parts_and_writes_itself() {
    each_is(&[
        ("const { href, protocol, username, password, host, hostname, port, pathname, search, hash, origin } =
            new URL('https://me:secret@example.com:8443/a/b?x=1&y=2#top');
          return [href, protocol, username, password, host, hostname, port, pathname, search, hash, origin]",
         r##"["https://me:secret@example.com:8443/a/b?x=1&y=2#top","https:","me","secret","example.com:8443","example.com","8443","/a/b","?x=1&y=2","#top","https://example.com:8443"]"##),
        ("const url = new URL('http://h/?#'); return [url.search, url.hash, url.href, `${url}`, JSON.stringify({ url })]",
         r#"["","","http://h/?#","http://h/?#","{\"url\":\"http://h/?#\"}"]"#),
        ("return [new URL('data:x').origin, new URL('blob:https://h/1').origin, new URL('http://h').port]", r#"["null","https://h",""]"#),
        ("return [URL.parse('no'), URL.parse('/a', 'http://h').href, String(Object.prototype.toString.call(new URL('a:b')))]",
         r#"[null,"http://h/a","[object URL]"]"#),
        ("return new URL(new URL('http://h/a'), new URL('http://other')).href", r#""http://h/a""#),
    ])
    .await;
}

/// A URL, the part that is set, to what, and the href then.
#[tokio::test]
async fn setting_a_part_changes_what_the_standard_lets_it_change() {
    let mut cases = Vec::new();
    for (url, part, value, href) in [
        ("http://h/a", "protocol", "https", "https://h/a"),
        ("http://h/a", "protocol", "mailto", "http://h/a"),
        ("http://h:443/a", "protocol", "https:", "https://h/a"),
        ("http://h/", "username", "a b", "http://a%20b@h/"),
        ("http://h/", "password", "p:@", "http://:p%3A%40@h/"),
        ("mailto:a@b", "username", "x", "mailto:a@b"),
        ("http://h:1/a", "host", "other:2", "http://other:2/a"),
        ("http://h:1/a", "hostname", "other", "http://other:1/a"),
        ("http://h/a", "hostname", "", "http://h/a"),
        ("http://h/a", "hostname", "a b", "http://h/a"),
        ("http://h/", "port", "90", "http://h:90/"),
        ("http://h:90/", "port", "", "http://h/"),
        ("http://h/", "port", "80", "http://h/"),
        ("http://h/", "port", "8a", "http://h:8/"),
        ("http://h/", "port", "65536", "http://h/"),
        ("http://h/a", "pathname", "b c/../d", "http://h/d"),
        ("http://h/a", "pathname", "", "http://h/"),
        ("mailto:a@b", "pathname", "x", "mailto:a@b"),
        ("http://h/a", "search", "x=1", "http://h/a?x=1"),
        ("http://h/a?x", "search", "", "http://h/a"),
        ("http://h/a", "search", "??", "http://h/a??"),
        ("http://h/a", "hash", "top", "http://h/a#top"),
        ("http://h/a#x", "hash", "", "http://h/a"),
        ("http://h/a", "href", "ftp://x/", "ftp://x/"),
    ] {
        cases.push((
            format!("(() => {{ const url = new URL('{url}'); url.{part} = '{value}'; return url.href }})()"),
            format!("\"{href}\""),
        ));
    }
    cases.push((
        "(() => { new URL('http://h').href = 'no' })()".to_owned(),
        r#""TypeError""#.to_owned(),
    ));
    let cases: Vec<_> = cases.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    all_are(&cases).await;
}

#[tokio::test]
async fn parameters_are_read_and_written_as_forms_are() {
    all_are(&[
        ("[...new URLSearchParams('?a=1&b=2&a=3')]", r#"[["a","1"],["b","2"],["a","3"]]"#),
        ("[...new URLSearchParams('a+b=%20c%2B&&=x&y&z=')]", r#"[["a b"," c+"],["","x"],["y",""],["z",""]]"#),
        ("[...new URLSearchParams('a=%c3%bc&b=%ff&c=%zz')]", "[[\"a\",\"ü\"],[\"b\",\"\u{fffd}\"],[\"c\",\"%zz\"]]"),
        ("new URLSearchParams([['a', 'b c'], ['ü', '&=+']]).toString()", r#""a=b+c&%C3%BC=%26%3D%2B""#),
        ("new URLSearchParams({ a: 1, b: [2, 3], __proto__: { c: 4 } }).toString()", r#""a=1&b=2%2C3""#),
        ("new URLSearchParams(new URLSearchParams('a=1&a=2')).toString()", r#""a=1&a=2""#),
        ("new URLSearchParams(undefined).toString()", r#""""#),
        ("new URLSearchParams(null).toString()", r#""null=""#),
        ("new URLSearchParams([['a']])", r#""TypeError""#),
        (r"new URLSearchParams([['\ud800', '~!*()-._']]).toString()", r#""%EF%BF%BD=%7E%21*%28%29-._""#),
        ("(() => { const p = new URLSearchParams('a=1&b=2&a=3'); return [p.size, p.get('a'), p.getAll('a'), p.get('x'), p.has('b'), p.has('b', '3'), p.has('a', 3)] })()",
            r#"[3,"1",["1","3"],null,true,false,true]"#),
        ("(() => { const p = new URLSearchParams('a=1&b=2&a=3'); p.set('a', 4); p.append('c', null); p.delete('b'); return `${p}` })()",
            r#""a=4&c=null""#),
        ("(() => { const p = new URLSearchParams('a=1&a=2&b=3'); p.delete('a', '2'); p.set('d', 5); return `${p}` })()", r#""a=1&b=3&d=5""#),
        (r"(() => { const p = new URLSearchParams('z=1&\uffff=2&a=3&\ud83d\ude00=4&a=2'); p.sort(); return [...p.values()] })()",
            r#"["3","2","1","4","2"]"#),
        ("(() => { const seen = []; new URLSearchParams('a=1&b=2').forEach((v, k) => seen.push(k + v)); return [seen, [...new URLSearchParams('a=1').keys()]] })()",
            r#"[["a1","b2"],["a"]]"#),
    ])
    .await;
}

#[tokio::test]
async fn a_url_and_its_parameters_change_together() {
    each_is(&[(
        "const url = new URL('http://h/?a=1#f'), params = url.searchParams, seen = [];
         params.append('b', 'x y'); seen.push(url.href);
         url.search = '?c=3'; seen.push(params.get('c'), params.has('a'));
         params.delete('c'); seen.push(url.href, url.searchParams === params);
         url.href = 'http://other/?z=9'; seen.push(params.get('z'));
         return seen",
        r#"["http://h/?a=1&b=x+y#f","3",false,"http://h/#f",true,"9"]"#,
    )])
    .await;
}
