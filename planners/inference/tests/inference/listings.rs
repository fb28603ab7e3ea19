//! The paper's listings: they parse, to the shapes and collectives that its text and Table 2 say.

use litd_inference::interpret::{Action, Degrees, Program, Shape};
use litd_inference::model::Model;
use litd_inference::spec::{Spec, Symbols, listings};

/// Values of Table 2 for a model, with a batch of 2 and 4096 tokens.
fn symbols(model: &Model, s: f64, z: f64) -> Symbols {
    let mut symbols = Symbols::default();
    let ffn = model.experts.map_or(model.ffn, |it| it.inter);
    let top_k = model.experts.map_or(1.0, |it| it.top_k);
    for (letter, value) in [
        ('b', 2.0),
        ('s', s),
        ('z', z),
        ('h', model.head_dim),
        ('H', model.heads),
        ('K', model.kv_heads),
        ('r', model.ratio()),
        ('m', model.hidden),
        ('f', ffn),
        ('F', 2.0 * ffn),
        ('i', 2.0 + model.ratio()),
        ('A', top_k),
        ('E', 32.0),
        ('T', 512.0),
    ] {
        symbols.set(letter, value);
    }
    symbols
}

fn program(text: &str) -> Program {
    Program::new(&Spec::parse(text).unwrap()).unwrap()
}

fn shape(groups: f64, m: f64, n: f64, k: f64) -> Shape {
    Shape { groups, m, n, k }
}

const TP8: Degrees = Degrees {
    tp: 8,
    ep: 1,
    cp: 1,
};

#[test]
fn listing_3_is_llama_70b_with_two_all_reduces() {
    let (model, program) = (
        Model::named("llama-3-70b").unwrap(),
        program(listings::FUSED_DENSE),
    );
    let symbols = program
        .symbols(&symbols(&model, 4096.0, 4096.0), TP8)
        .unwrap();
    let shapes: Vec<Shape> = program
        .operators
        .iter()
        .map(|it| it.shape(&symbols, TP8))
        .collect();
    assert_eq!(
        shapes,
        [
            shape(1.0, 8192.0, 1280.0, 8192.0),
            // Queries and keys: 2 requests x 1 KV head; 8 grouped heads x 4096 queries; 4096 keys; 128.
            shape(2.0, 8.0 * 4096.0, 4096.0, 128.0),
            shape(1.0, 8192.0, 8192.0, 1024.0),
            shape(1.0, 8192.0, 7168.0, 8192.0),
            shape(1.0, 8192.0, 8192.0, 3584.0),
        ]
    );
    // Output and down projection sum over a shared symbol: the whole output in 2 bytes each.
    let reduced: Vec<_> = program
        .operators
        .iter()
        .map(|it| it.reduced(&symbols, TP8))
        .collect();
    let whole = Some((8, 2.0 * 8192.0 * 8192.0));
    assert_eq!(reduced, [None, None, whole, None, whole]);
    let one = program.symbols(&symbols, Degrees::ONE).unwrap();
    assert!(
        program
            .operators
            .iter()
            .all(|it| it.reduced(&one, Degrees::ONE).is_none())
    );
    assert!(program.operators.iter().all(|it| !it.exchanges));
}

#[test]
fn listing_2_computes_as_much_as_listing_3() {
    let model = Model::named("llama-3-8b").unwrap();
    let flops = |text: &str| -> f64 {
        let program = program(text);
        let symbols = program
            .symbols(&symbols(&model, 1.0, 1024.0), Degrees::ONE)
            .unwrap();
        program
            .operators
            .iter()
            .map(|it| it.shape(&symbols, Degrees::ONE).flops())
            .sum()
    };
    assert_eq!(flops(listings::UNFUSED_DENSE), flops(listings::FUSED_DENSE));
}

#[test]
fn listing_1_has_grouped_products_and_movements() {
    let (model, program) = (
        Model::named("qwen3-30b-a3b").unwrap(),
        program(listings::FUSED_MOE),
    );
    let degrees = Degrees {
        tp: 4,
        ep: 4,
        cp: 1,
    };
    let symbols = program
        .symbols(&symbols(&model, 4096.0, 4096.0), degrees)
        .unwrap();
    let by_label = |label: &str| {
        program
            .operators
            .iter()
            .find(|it| it.label == label)
            .unwrap()
    };
    // E and T are of one GPU already.
    let gate = by_label("Gate & Up Projection");
    assert_eq!(
        gate.shape(&symbols, degrees),
        shape(32.0, 512.0, 1536.0, 2048.0)
    );
    let down = by_label("Down Projection");
    assert_eq!(
        down.shape(&symbols, degrees),
        shape(32.0, 512.0, 2048.0, 768.0)
    );
    for label in ["Scatter", "Reduction"] {
        assert_eq!(by_label(label).action, Action::Movement, "{label}");
    }
    // The weighted sum over activated experts is where expert parallelism reduces.
    let whole = 2.0 * 8192.0 * 2048.0;
    assert_eq!(
        by_label("Reduction").reduced(&symbols, degrees),
        Some((4, whole))
    );
    assert_eq!(
        by_label("Output Projection").reduced(&symbols, degrees),
        Some((4, whole))
    );
    assert_eq!(gate.reduced(&symbols, degrees), None);
    // Decode of this model: M is the batch.
    let decode = program
        .symbols(&self::symbols(&model, 1.0, 4096.0), degrees)
        .unwrap();
    let output = by_label("Output Projection").shape(&decode, degrees);
    assert_eq!(output, shape(1.0, 2.0, 2048.0, 1024.0));
}

#[test]
fn listing_5_exchanges_before_and_after_attention() {
    let (model, program) = (
        Model::named("llama-3-8b").unwrap(),
        program(listings::CONTEXT_DENSE),
    );
    let degrees = Degrees {
        tp: 1,
        ep: 1,
        cp: 2,
    };
    let symbols = program
        .symbols(&symbols(&model, 4096.0, 4096.0), degrees)
        .unwrap();
    let exchanges: Vec<bool> = program.operators.iter().map(|it| it.exchanges).collect();
    assert_eq!(exchanges, [false, true, true, false, false]);
    // i is the whole width here: (2 + 4) x 8 x 128.
    let qkv = &program.operators[0];
    assert_eq!(
        qkv.shape(&symbols, degrees),
        shape(1.0, 4096.0, 6144.0, 4096.0)
    );
    assert_eq!(qkv.sent(&symbols, degrees), 2.0 * 4096.0 * 6144.0);
    // Attention's is its last inner equation's result on one rank: b K/2 r s h.
    assert_eq!(
        program.operators[1].sent(&symbols, degrees),
        2.0 * 2.0 * 4.0 * 4.0 * 4096.0 * 128.0
    );
}

#[test]
fn overlap_is_read_as_section_3_4_writes_it() {
    let text = r#"x = [op("bsf, fm->bsm", parallel="f", overlap_stage=4, overlap_SM=16, overlap="s", label="Down Projection")]"#;
    let (model, program) = (Model::named("llama-3-70b").unwrap(), program(text));
    let symbols = program
        .symbols(&symbols(&model, 4096.0, 4096.0), TP8)
        .unwrap();
    let down = &program.operators[0];
    let overlap = down.overlap.unwrap();
    assert_eq!((overlap.stages, overlap.sms), (4, 16));
    assert_eq!(
        down.stage(&symbols, TP8, overlap),
        shape(1.0, 2048.0, 8192.0, 3584.0)
    );
}

/// The same operators as TOML.
#[test]
fn toml_says_the_same() {
    let toml = r#"
        [symbols]
        i = 6144
        [[op]]
        eq = "bsm,mi->bsi"
        CP_dim = "s"
        label = "QKV Projection"
        [[op]]
        eq = "attention"
        CP_dim = "H"
        label = "Attention"
        attn_eqs = [
            { eq = "bKrsh,bKzh->bKrsz", CP_dim = "K", label = "QK" },
            { eq = "bKrsz,bKzh->bKrsh", CP_dim = "K", label = "AV" },
        ]
        [[op]]
        eq = "bsHh,Hhm->bsm"
        CP_dim = "s"
        label = "Output Projection"
    "#;
    let (model, by_toml) = (Model::named("llama-3-8b").unwrap(), program(toml));
    let by_text = program(listings::CONTEXT_DENSE);
    let degrees = Degrees {
        tp: 1,
        ep: 1,
        cp: 4,
    };
    let base = symbols(&model, 4096.0, 4096.0);
    let (a, b) = (
        by_toml.symbols(&base, degrees).unwrap(),
        by_text.symbols(&base, degrees).unwrap(),
    );
    for (left, right) in by_toml.operators.iter().zip(&by_text.operators) {
        assert_eq!(left.shape(&a, degrees), right.shape(&b, degrees));
        assert_eq!(left.label, right.label);
    }
}

fn error(text: &str) -> String {
    Spec::parse(text).unwrap_err().to_string()
}

#[test]
fn errors_point_at_the_character() {
    let printed = "llm_model.EQS = [\n  op(\"bsm,mKh->bsiKh\", parallel=\"K\")\n]";
    let listing_3 = error(printed);
    assert!(
        listing_3.starts_with("line 2, column 18: 'i' is in the output but in no operand"),
        "{listing_3}"
    );
    assert!(listing_3.ends_with("\n                   ^"), "{listing_3}");
    let both = error("x = [op(\"bsm,mf->bsf\", parallel=\"f\", CP_dim=\"s\")]");
    assert!(
        both.contains("column 46: parallel and CP_dim are given both"),
        "{both}"
    );
    for (text, said) in [
        ("x = [op(\"bsm,mf,fg->bsg\")]", "column 10: 3 operands"),
        ("x = [op(\"bsm,mf\")]", "needs \"->\""),
        ("x = [op(\"bsm,mf->b1f\")]", "column 19: '1' is no symbol"),
        ("x = [op(\"bbm,mf->bmf\")]", "column 11: 'b' stands twice"),
        ("x = [op(\"bsm,->bsf\")]", "a tensor has no symbols"),
        (
            "x = [op(\"bsm,mf->bsf\", parallel=\"q\")]",
            "'q' does not occur",
        ),
        (
            "x = [op(\"bsm,mf->bsf\", paralel=\"f\")]",
            "\"paralel\" is no key",
        ),
        (
            "x = [op(\"bsm,mf->bsf\" parallel=\"f\")]",
            "column 23: ',' is missing here",
        ),
        ("x = [op(\"bsm,mf->bsf)]", "does not end on this line"),
        ("x = [op(\"bsm,mf->bsf\")", "',' is missing here"),
        (
            "x = [op(\"bsf,fm->bsm\", parallel=\"f\", overlap_stage=4)]",
            "without overlap",
        ),
        (
            "x = [op(\"bsf,fm->bsm\", parallel=\"f\", overlap_stage=0, overlap=\"s\")]",
            "a whole number of 1 to 1024",
        ),
        (
            "x = [op(\"bsf,fm->bsm\", overlap_stage=4, overlap=\"f\")]",
            "no symbol of the output",
        ),
        ("x = [eval(\"1\")]", "\"eval\" is no operator"),
        ("import os", "'=' is missing here"),
        ("", "there is no list of operators"),
        (
            "[[op]]\neq = \"bsm,mf->bsq\"",
            "line 2, column 17: 'q' is in the output",
        ),
        ("[[op]]\neq = 3", "line 2, column 6"),
    ] {
        assert!(error(text).contains(said), "{text}: {}", error(text));
    }
}

#[test]
fn degrees_that_do_not_divide_and_unknown_symbols_are_refused() {
    let (model, dense) = (
        Model::named("qwen3-30b-a3b").unwrap(),
        program(listings::FUSED_MOE),
    );
    let base = symbols(&model, 4096.0, 4096.0);
    let eight = Degrees {
        tp: 8,
        ep: 8,
        cp: 1,
    };
    let error = dense.symbols(&base, eight).unwrap_err().to_string();
    assert_eq!(
        error,
        "\"QKV Projection\": K = 4 does not divide by a degree of 8: K caps it at 4"
    );
    let unknown = program("x = [op(\"bsm,mq->bsq\")]");
    let error = unknown
        .symbols(&base, Degrees::ONE)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("\"bsm,mq->bsq\": the symbol q has no value; there are A E F"),
        "{error}"
    );
    let odd = program("x = [op(\"bsm,mHh->bsHh\")]\nr = 3");
    let error = odd.symbols(&base, Degrees::ONE).unwrap_err().to_string();
    assert!(error.contains("H = 32 is not K x r = 4 x 3"), "{error}");
    let inner = "a = [op(\"bsm,mf->bsf\")]\nx = [op(\"attention\", attn_eqs=a)]";
    let error = Program::new(&Spec::parse(inner).unwrap())
        .unwrap_err()
        .to_string();
    assert!(error.contains("\"Attention\" has 1"), "{error}");
}
