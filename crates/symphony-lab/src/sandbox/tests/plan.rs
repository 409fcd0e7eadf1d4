use crate::sandbox::{Matches, Plan, ScriptItem};

#[test]
fn a_plan_survives_being_written_and_read() {
    let text = r#"{"seed":7,"per_mille":{"delay:50":20,"reset_after":10},"inquiry_per_mille":{"error:503":50},"script":[{"key":"k","faults":["hang_after"],"inquiry_faults":["hang"]},{"any":true,"faults":["none","refuse:AC04"],"inquiry_faults":[]}]}"#;
    let plan = Plan::from_json(text.as_bytes()).unwrap();
    assert_eq!(serde_json::to_string(&plan).unwrap(), text);
    assert_eq!(serde_json::from_str::<Plan>(text).unwrap(), plan);
    let item = ScriptItem::new(Matches::Any, plan.script[1].faults.clone());
    assert_eq!(item, plan.script[1]);
    assert!(Plan::from_json(b"{}").unwrap().is_empty());
}

#[test]
fn a_mistake_in_a_plan_is_named_with_its_place() {
    let mistakes = [
        ("[]", "the plan must be a JSON object, not a JSON list"),
        ("{", "the plan is no JSON"),
        (r#"{"sed": 1}"#, "sed is unknown"),
        (r#"{"seed": "x"}"#, "seed must be a whole number"),
        (r#"{"seed": 1.5}"#, "seed must be a whole number"),
        (r#"{"per_mille": []}"#, "per_mille must be a JSON object"),
        (r#"{"per_mille": {"delay": 1}}"#, "per_mille.delay needs its milliseconds"),
        (r#"{"per_mille": {"delay:999999": 1}}"#, "per_mille.delay:999999 needs its milliseconds"),
        (r#"{"per_mille": {"hang_after:3": 1}}"#, "per_mille.hang_after:3 takes nothing"),
        (r#"{"per_mille": {"reset_after": 1001}}"#, "per_mille.reset_after must be a whole number"),
        (
            r#"{"per_mille": {"reset_after": 600, "reset_before": 600}}"#,
            "per_mille adds up to 1200",
        ),
        (
            r#"{"inquiry_per_mille": {"error:404": 1}}"#,
            "inquiry_per_mille.error:404 may not be 404",
        ),
        (
            r#"{"inquiry_per_mille": {"hang_after": 1}}"#,
            "inquiry_per_mille.hang_after is no fault of an inquiry",
        ),
        (r#"{"script": {}}"#, "script must be a JSON list"),
        (r#"{"script": [{"faults": []}]}"#, "script[0] must have exactly one of"),
        (r#"{"script": [{"key": "k", "any": true}]}"#, "script[0] must have exactly one of"),
        (r#"{"script": [{"any": false}]}"#, "script[0].any can only be true"),
        (r#"{"script": [{"key": 3}]}"#, "script[0].key must be text"),
        (
            r#"{"script": [{"any": true, "faults": ["none", "refuse:"]}]}"#,
            "script[0].faults[1] needs a code",
        ),
        (
            r#"{"script": [{"any": true, "faults": ["error_after:200"]}]}"#,
            "script[0].faults[0] needs a status",
        ),
        (r#"{"script": [{"any": true, "fault": []}]}"#, "script[0].fault is unknown"),
    ];
    for (text, expected) in mistakes {
        let error = Plan::from_json(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}
