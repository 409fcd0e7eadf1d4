//! `crypto` against published vectors, and what it refuses.

use symphony::lanes::triggers::executor::Executor as _;

use super::{each_is, executor, in_words, request};

/// The digests of RFC 6234, section 8.5, and of nothing: what is hashed, and SHA-1, SHA-256, SHA-384 and SHA-512 of it.
const DIGESTS: &[(&str, [&str; 4])] = &[
    (
        "''",
        [
            "da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "38b060a751ac96384cd9327eb1b1e36a21fdb71114be07434c0cc7bf63f6e1da274edebfe76f65fbd51ad2f14898b95b",
            "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e",
        ],
    ),
    (
        "'abc'",
        [
            "a9993e364706816aba3e25717850c26c9cd0d89d",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ],
    ),
    (
        "'abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq'",
        [
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            "3391fdddfc8dc7393707a65b1b4709397cf8b1d162af05abfe8f450de5f36bc6b0455a8520bc4e6f5fe95b1fe3c8452b",
            "204a8fc6dda82f0a0ced7beb8e08a41657c16ef468b228a8279be331a703c33596fd15c13b1b07f9aa1d3bea57789ca031ad85c7a71dd70354ec631238ca3445",
        ],
    ),
    (
        "'abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu'",
        [
            "a49b2446a02c645bf419f995b67091253a04a259",
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1",
            "09330c33f71147e83d192fc782cd1b4753111b173b3b05d22fa08086e3b0f712fcc7c71a557e2db966c3e9fa91746039",
            "8e959b75dae313da8cf4f72814fc143f8f7779c6eb9f7fa17299aeadb6889018501d289e4900f7e4331b99dec4b5433ac7d329eeb6dd26545e96e55b874be909",
        ],
    ),
    (
        "'a'.repeat(1000000)",
        [
            "34aa973cd4c4daa4f61eeb2bdbad27316534016f",
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
            "9d0e1809716474cb086e834e310a4a1ced149e9c00f248527972cec5704c2a5b07b8b3dc38ecc4ebae97ddd87f3d8985",
            "e718483d0ce769644e2e42c7bc15b4638e1f98b13b2044285632a803afa973ebde0ff244877ea60a4cb0432ce577c31beb009c5c2c49aa2e4eadb217ad8cc09b",
        ],
    ),
    (
        "'0123456701234567012345670123456701234567012345670123456701234567'.repeat(10)",
        [
            "dea356a2cddd90c7a7ecedc5ebb563934f460452",
            "594847328451bdfa85056225462cc1d867d877fb388df0ce35f25ab5562bfbb5",
            "2fc64a4f500ddb6828f6a3430b8dd72a368eb7f3a8322a70bc84275b9c0b3ab00d27a5cc3c2d224aa6b61a0d79fb4596",
            "89d05ba632c699c31231ded4ffc127d5a894dad412c0e024db872d1abd2ba8141a0f85072a9be1e2aa04cf33c765cb510813a39cd5a84c4acaa64d3f3fb7bae9",
        ],
    ),
];

/// RFC 4231, test cases 1 to 7: key and data in hexadecimal, HMAC with SHA-256, SHA-384 and SHA-512.
/// Case 5 is compared whole: truncation is the receiver's.
const HMACS: &[(&str, &str, [&str; 3])] = &[
    (
        "'0b'.repeat(20)",
        "'4869205468657265'",
        [
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            "afd03944d84895626b0825f4ab46907f15f9dadbe4101ec682aa034c7cebc59cfaea9ea9076ede7f4af152e8b2fa9cb6",
            "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cdedaa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854",
        ],
    ),
    (
        "'4a656665'",
        "'7768617420646f2079612077616e7420666f72206e6f7468696e673f'",
        [
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649",
            "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
        ],
    ),
    (
        "'aa'.repeat(20)",
        "'dd'.repeat(50)",
        [
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
            "88062608d3e6ad8a0aa2ace014c8a86f0aa635d947ac9febe83ef4e55966144b2a5ab39dc13814b94e3ab6e101a34f27",
            "fa73b0089d56a284efb0f0756c890be9b1b5dbdd8ee81a3655f83e33b2279d39bf3e848279a722c806b485a47e67c807b946a337bee8942674278859e13292fb",
        ],
    ),
    (
        "'0102030405060708090a0b0c0d0e0f10111213141516171819'",
        "'cd'.repeat(50)",
        [
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b",
            "3e8a69b7783c25851933ab6290af6ca77a9981480850009cc5577c6e1f573b4e6801dd23c4a7d679ccf8a386c674cffb",
            "b0ba465637458c6990e5a8c5f61d4af7e576d97ff94b872de76f8050361ee3dba91ca5c11aa25eb4d679275cc5788063a5f19741120c4f2de2adebeb10a298dd",
        ],
    ),
    (
        "'0c'.repeat(20)",
        "'546573742057697468205472756e636174696f6e'",
        [
            "a3b6167473100ee06e0c796c2955552bfa6f7c0a6a8aef8b93f860aab0cd20c5",
            "3abf34c3503b2a23a46efc619baef897f4c8e42c934ce55ccbae9740fcbc1af4ca62269e2a37cd88ba926341efe4aeea",
            "415fad6271580a531d4179bc891d87a650188707922a4fbb36663a1eb16da008711c5b50ddd0fc235084eb9d3364a1454fb2ef67cd1d29fe6773068ea266e96b",
        ],
    ),
    (
        "'aa'.repeat(131)",
        "'54657374205573696e67204c6172676572205468616e20426c6f636b2d53697a65204b6579202d2048617368204b6579204669727374'",
        [
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            "4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c60c2ef6ab4030fe8296248df163f44952",
            "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f3526b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598",
        ],
    ),
    (
        "'aa'.repeat(131)",
        "'5468697320697320612074657374207573696e672061206c6172676572207468616e20626c6f636b2d73697a65206b657920616e642061206c6172676572207468616e20626c6f636b2d73697a6520646174612e20546865206b6579206e6565647320746f20626520686173686564206265666f7265206265696e6720757365642062792074686520484d414320616c676f726974686d2e'",
        [
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
            "6617178e941f020d351e2f254e8fd32c602420feb0b8fb9adccebb82461e99c5a678cc31e799176d3860e6110c46523e",
            "e37b6a775dc87dbaa4dfa9f96e5e3ffddebd71f8867289865df5a32d20cdc944b6022cac3c4982b10d5eeb55c3e4de15134676fb6de0446065c97440fa8c6a58",
        ],
    ),
];

/// RFC 2202, test cases 1, 2, 3 and 6: HMAC with SHA-1.
const HMACS_SHA1: &[(&str, &str, &str)] = &[
    ("'0b'.repeat(20)", "'4869205468657265'", "b617318655057264e28bc0b6fb378c8ef146be00"),
    (
        "'4a656665'",
        "'7768617420646f2079612077616e7420666f72206e6f7468696e673f'",
        "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
    ),
    ("'aa'.repeat(20)", "'dd'.repeat(50)", "125d7342b9ac11cd91a39af48aa17b4f63f175d3"),
    (
        "'aa'.repeat(80)",
        "'54657374205573696e67204c6172676572205468616e20426c6f636b2d53697a65204b6579202d2048617368204b6579204669727374'",
        "aa4ae5e15272d00e95705637ce8a3b55ed402112",
    ),
];

#[tokio::test]
async fn digests_are_those_of_rfc_6234() {
    for (text, digests) in DIGESTS {
        let source = format!(
            "export default async () => {{
                const data = new TextEncoder().encode({text});
                const hex = async (name) => new Uint8Array(await crypto.subtle.digest(name, data)).toHex();
                return [await hex('SHA-1'), await hex({{ name: 'sha-256' }}), await hex('SHA-384'), await hex('SHA-512')] }}"
        );
        let told = in_words(&executor().run(&request(&source)).await);
        assert_eq!(told, serde_json::to_string(digests).unwrap(), "{text}");
    }
}

#[tokio::test]
async fn signatures_are_those_of_rfc_4231_and_rfc_2202() {
    let mut cases = Vec::new();
    for (key, data, [sha256, sha384, sha512]) in HMACS {
        for (hash, expected) in [("SHA-256", sha256), ("SHA-384", sha384), ("SHA-512", sha512)] {
            cases.push((hash, key, data, expected));
        }
    }
    cases.extend(HMACS_SHA1.iter().map(|(key, data, expected)| ("SHA-1", key, data, expected)));
    assert_eq!(cases.len(), 25);
    let executor = executor();
    for (hash, key, data, expected) in cases {
        let source = format!(
            "export default async () => {{
                const [raw, data] = [Uint8Array.fromHex({key}), Uint8Array.fromHex({data})];
                const key = await crypto.subtle.importKey('raw', raw, {{ name: 'HMAC', hash: '{hash}' }}, false, ['sign', 'verify']);
                const signature = new Uint8Array(await crypto.subtle.sign('HMAC', key, data));
                const good = await crypto.subtle.verify('HMAC', key, signature, data);
                const short = await crypto.subtle.verify('HMAC', key, signature.slice(1), data);
                const hex = signature.toHex();
                signature[0] ^= 1;
                return [hex, good, short, await crypto.subtle.verify('HMAC', key, signature, data)] }}"
        );
        let told = in_words(&executor.run(&request(&source)).await);
        assert_eq!(told, format!(r#"["{expected}",true,false,false]"#), "{hash} {key}");
    }
}

#[tokio::test]
async fn bytes_are_taken_from_buffers_and_from_views_of_a_part() {
    each_is(&[
        ("const whole = new Uint8Array([0, 97, 98, 99, 0]);
          const hex = async (data) => new Uint8Array(await crypto.subtle.digest('SHA-1', data)).toHex().slice(0, 8);
          return [await hex(whole.subarray(1, 4)), await hex(new DataView(whole.buffer, 1, 3)), await hex(whole.buffer.slice(1, 4))]",
         r#"["a9993e36","a9993e36","a9993e36"]"#),
        ("const key = await crypto.subtle.generateKey({ name: 'HMAC', hash: 'SHA-512' }, true, ['verify', 'sign']);
          const raw = await crypto.subtle.exportKey('raw', key);
          return [key.type, key.extractable, key.algorithm, key.usages, raw.byteLength, key instanceof CryptoKey]",
         r#"["secret",true,{"name":"HMAC","hash":{"name":"SHA-512"},"length":1024},["sign","verify"],128,true]"#),
    ])
    .await;
}

#[tokio::test]
async fn what_is_refused_is_refused_under_the_standards_names() {
    let made = "const make = (usages = ['sign'], hash = 'SHA-256', data = new Uint8Array(1)) => crypto.subtle.importKey('raw', data, { name: 'HMAC', hash }, false, usages);";
    for (expression, name) in [
        ("await crypto.subtle.digest('MD5', new Uint8Array())", "NotSupportedError"),
        ("await crypto.subtle.digest('SHA-256', 'text')", "TypeError"),
        (
            "await crypto.subtle.importKey('jwk', {}, { name: 'HMAC', hash: 'SHA-1' }, false, ['sign'])",
            "NotSupportedError",
        ),
        (
            "await crypto.subtle.importKey('raw', new Uint8Array(1), 'AES-GCM', false, ['encrypt'])",
            "NotSupportedError",
        ),
        ("await make(['sign'], 'SHA-256', new Uint8Array())", "DataError"),
        ("await make([])", "SyntaxError"),
        ("await make(['encrypt'])", "SyntaxError"),
        (
            "await crypto.subtle.verify('HMAC', await make(), new Uint8Array(), new Uint8Array())",
            "InvalidAccessError",
        ),
        ("await crypto.subtle.sign('HMAC', {}, new Uint8Array())", "TypeError"),
        ("await crypto.subtle.exportKey('raw', await make())", "InvalidAccessError"),
        ("crypto.getRandomValues(new Uint8Array(65537))", "QuotaExceededError"),
        ("crypto.getRandomValues(new Float64Array(1))", "TypeMismatchError"),
        ("new CryptoKey()", "TypeError"),
    ] {
        let source = format!(
            "export default async () => {{ {made} try {{ {expression}; return 'taken' }} catch (error) {{ return error.name }} }}"
        );
        let told = in_words(&executor().run(&request(&source)).await);
        assert_eq!(told, format!("\"{name}\""), "{expression}");
    }
}

#[tokio::test]
async fn random_values_fill_what_they_are_given_and_differ() {
    each_is(&[
        ("const seen = new Set(); for (let i = 0; i < 100; i++) seen.add(crypto.randomUUID()); return seen.size", "100"),
        ("return /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID())", "true"),
        ("const words = new Uint32Array(64), same = crypto.getRandomValues(words); return [same === words, new Set(words).size > 60]", "[true,true]"),
        ("const all = new Uint8Array(100); crypto.getRandomValues(all.subarray(10, 90));
          return [all.slice(0, 10).every((b) => b === 0), all.slice(90).every((b) => b === 0), new Set(all).size > 20]", "[true,true,true]"),
        ("return crypto.getRandomValues(new Uint8Array(65536)).length", "65536"),
    ])
    .await;
}
