//! Texts and bytes: RFC 4648 for base64, the Encoding Standard's rules for the rest.

use super::{all_are, each_is};

#[tokio::test]
async fn base64_is_that_of_rfc_4648() {
    // Section 10.
    let mut cases = Vec::new();
    for (text, base64) in [
        ("", ""),
        ("f", "Zg=="),
        ("fo", "Zm8="),
        ("foo", "Zm9v"),
        ("foob", "Zm9vYg=="),
        ("fooba", "Zm9vYmE="),
        ("foobar", "Zm9vYmFy"),
    ] {
        cases.push((format!("btoa('{text}')"), format!("\"{base64}\"")));
        cases.push((format!("atob('{base64}')"), format!("\"{text}\"")));
    }
    let cases: Vec<_> = cases.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    all_are(&cases).await;
}

#[tokio::test]
async fn atob_forgives_what_the_standard_says_and_nothing_else() {
    all_are(&[
        (r"atob(' Z m\t9\nv\r\f ')", r#""foo""#),
        ("atob('Zg')", r#""f""#),
        ("atob('Zh==')", r#""f""#),
        ("atob('Zm8')", r#""fo""#),
        ("atob('+/+/').charCodeAt(0)", "251"),
        ("atob('Z')", r#""InvalidCharacterError""#),
        ("atob('Zg=')", r#""InvalidCharacterError""#),
        ("atob('Zg===')", r#""InvalidCharacterError""#),
        ("atob('Z=g=')", r#""InvalidCharacterError""#),
        ("atob('-_')", r#""InvalidCharacterError""#),
        (r"atob('Zm9v\u00a0')", r#""InvalidCharacterError""#),
        (r"btoa('\u00ff')", r#""/w==""#),
        (r"btoa('\u0100')", r#""InvalidCharacterError""#),
        ("btoa(null)", r#""bnVsbA==""#),
        ("btoa(atob('AAECA///')) ", r#""AAECA///""#),
    ])
    .await;
}

#[tokio::test]
async fn text_becomes_utf_8_and_half_a_pair_the_replacement() {
    all_are(&[
        ("new TextEncoder().encoding", r#""utf-8""#),
        ("[...new TextEncoder().encode()]", "[]"),
        ("[...new TextEncoder().encode(undefined)]", "[]"),
        ("[...new TextEncoder().encode('aü€😀')]", "[97,195,188,226,130,172,240,159,152,128]"),
        (r"[...new TextEncoder().encode('\ud800a\udc00')]", "[239,191,189,97,239,191,189]"),
        (r"[...new TextEncoder().encode('\0')]", "[0]"),
        ("new TextEncoder().encode('x') instanceof Uint8Array", "true"),
        ("(() => { const to = new Uint8Array(5); return [new TextEncoder().encodeInto('a€€', to), [...to]] })()",
            r#"[{"read":2,"written":4},[97,226,130,172,0]]"#),
        ("new TextEncoder().encodeInto('😀', new Uint8Array(3))", r#"{"read":0,"written":0}"#),
        ("new TextEncoder().encodeInto('😀', new Uint8Array(4))", r#"{"read":2,"written":4}"#),
    ])
    .await;
}

/// Malformed UTF-8, with as many replacements as the standard's decoder makes.
#[tokio::test]
async fn bytes_become_text_with_the_standards_replacements() {
    let mut cases = Vec::new();
    for (bytes, text) in [
        ("[0x61, 0xc3, 0xbc]", "aü"),
        ("[0xff]", "\u{fffd}"),
        ("[0xc0, 0x80]", "\u{fffd}\u{fffd}"),
        ("[0xc3]", "\u{fffd}"),
        ("[0xc3, 0x28]", "\u{fffd}("),
        ("[0xe2, 0x82]", "\u{fffd}"),
        ("[0xe2, 0x28, 0xa1]", "\u{fffd}(\u{fffd}"),
        ("[0xed, 0xa0, 0x80]", "\u{fffd}\u{fffd}\u{fffd}"),
        ("[0xf0, 0x9f, 0x98]", "\u{fffd}"),
        ("[0xf0, 0x9f, 0x98, 0x41]", "\u{fffd}A"),
        ("[0xf4, 0x90, 0x80, 0x80]", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
        ("[0xf8, 0x88]", "\u{fffd}\u{fffd}"),
        ("[0xef, 0xbb, 0xbf, 0x61]", "a"),
        ("[0xef, 0xbb, 0xbf, 0xef, 0xbb, 0xbf]", "\u{feff}"),
        ("[0x61, 0xef, 0xbb, 0xbf]", "a\u{feff}"),
    ] {
        cases.push((
            format!("new TextDecoder().decode(new Uint8Array({bytes}))"),
            serde_json::to_string(text).unwrap(),
        ));
        let is_good = !text.contains('\u{fffd}');
        cases.push((
            format!("new TextDecoder('utf8', {{ fatal: true, ignoreBOM: true }}).decode(new Uint8Array({bytes})).length > 0"),
            if is_good { "true" } else { r#""TypeError""# }.to_owned(),
        ));
    }
    let cases: Vec<_> = cases.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    all_are(&cases).await;
}

#[tokio::test]
async fn labels_options_and_inputs_are_those_of_the_standard() {
    all_are(&[
        ("new TextDecoder().encoding", r#""utf-8""#),
        ("new TextDecoder(' UTF8 ').encoding", r#""utf-8""#),
        ("new TextDecoder('latin1').encoding", r#""windows-1252""#),
        ("new TextDecoder('ascii').decode(new Uint8Array([0x80, 0xe4]))", r#""€ä""#),
        ("new TextDecoder('utf-16').encoding", r#""utf-16le""#),
        ("new TextDecoder('utf-16').decode(new Uint8Array([0xff, 0xfe, 0x61, 0, 0x3d, 0xd8, 0, 0xde]))", r#""a😀""#),
        ("new TextDecoder('utf-16be').decode(new Uint8Array([0, 0x61, 0xd8]))", "\"a\u{fffd}\""),
        ("new TextDecoder('shift_jis').decode(new Uint8Array([0x83, 0x65, 0x83, 0x58, 0x83, 0x67]))", r#""テスト""#),
        ("new TextDecoder('no-such')", r#""RangeError""#),
        ("new TextDecoder('replacement')", r#""RangeError""#),
        ("[new TextDecoder().fatal, new TextDecoder('utf-8', { fatal: 1 }).fatal, new TextDecoder().ignoreBOM]", "[false,true,false]"),
        ("new TextDecoder('utf-8', { ignoreBOM: true }).decode(new Uint8Array([0xef, 0xbb, 0xbf, 0x61])).length", "2"),
        ("new TextDecoder().decode()", r#""""#),
        ("new TextDecoder().decode(new Uint8Array([1, 97, 98, 2]).subarray(1, 3))", r#""ab""#),
        ("new TextDecoder().decode(new Uint8Array([97]).buffer)", r#""a""#),
        ("new TextDecoder().decode('text')", r#""TypeError""#),
    ])
    .await;
}

#[tokio::test]
async fn a_text_in_pieces_is_decoded_as_one() {
    each_is(&[
        ("const decoder = new TextDecoder(); let text = '';
          for (const byte of new TextEncoder().encode('\\ufeffa€😀')) text += decoder.decode(new Uint8Array([byte]), { stream: true });
          return text + decoder.decode()", r#""a€😀""#),
        ("const decoder = new TextDecoder(), half = new Uint8Array([0xe2, 0x82]);
          return [decoder.decode(half, { stream: true }), decoder.decode(), decoder.decode(half)]", "[\"\",\"\u{fffd}\",\"\u{fffd}\"]"),
        ("const decoder = new TextDecoder('utf-8', { fatal: true }); decoder.decode(new Uint8Array([0xe2]), { stream: true });
          try { decoder.decode() } catch (error) { return error.name }", r#""TypeError""#),
        ("try { for (let i = 0; i < 200; i++) new TextDecoder().decode(new Uint8Array([0xe2]), { stream: true }) }
          catch (error) { return error.message }", r#""more than 100 texts are decoded in pieces""#),
    ])
    .await;
}
