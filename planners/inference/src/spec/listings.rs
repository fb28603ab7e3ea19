//! The paper's listings, with the corrections that make them valid: Listing 3's QKV projection is written as
//! Listing 1's (its own has i in the output alone).

use super::{Op, Spec, SpecError};

/// Listing 4: attention shared by heads.
pub const ATTENTION: &str = r#"
attn_eqs = [
    op("bKrsh,bKzh->bKrsz", parallel="K", label="QK"),
    op("bKrsz,bKzh->bKrsh", parallel="K", label="AV")
]
"#;

/// Listing 1: fused, tensor parallel in attention and expert parallel in the experts.
pub const FUSED_MOE: &str = r#"
llm_MoE.EQS = [
    op("bsm,miKh->bsiKh", parallel="K", label="QKV Projection"),
    op("attention", parallel="H", attn_eqs=attn_eqs, label="Attention"),
    op("bsHh,Hhm->bsm", parallel="H", label="Output Projection"),
    op("bsm,Em->bsE", label="Router"),
    op("bsm->bsmA", label="Scatter"),
    op("ETm,EmF->ETF", parallel="E", label="Gate & Up Projection"),
    op("ETf,Efm->ETm", parallel="E", label="Down Projection"),
    op("bsAm,bsA->bsm", parallel="A", label="Reduction")
]
"#;

/// Listing 2: dense, unfused.
pub const UNFUSED_DENSE: &str = r#"
llm_model.EQS = [
    op("bsm,mHh->bsHh", parallel="H", label="Q Projection"),
    op("bsm,mKh->bsKh", parallel="K", label="K Projection"),
    op("bsm,mKh->bsKh", parallel="K", label="V Projection"),
    op("attention", parallel="H", label="Attention"),
    op("bsHh,Hhm->bsm", parallel="H", label="Output Projection"),
    op("bsm,mf->bsf", parallel="f", label="Gate Projection"),
    op("bsm,mf->bsf", parallel="f", label="Up Projection"),
    op("bsf,fm->bsm", parallel="f", label="Down Projection")
]
"#;

/// Listing 3: dense, fused.
pub const FUSED_DENSE: &str = r#"
llm_model.EQS = [
    op("bsm,miKh->bsiKh", parallel="K", label="QKV Projection"),
    op("attention", parallel="K", attn_eqs=attn_eqs, label="Attention"),
    op("bsHh,Hhm->bsm", parallel="H", label="Output Projection"),
    op("bsm,mF->bsF", parallel="F", label="Gate & Up Projection"),
    op("bsf,fm->bsm", parallel="f", label="Down Projection")
]
"#;

/// Listing 5: dense, fused, context parallel (DeepSpeed-Ulysses). Its i is the whole width of the projection.
pub const CONTEXT_DENSE: &str = r#"
attn_eqs = [
    op("bKrsh,bKzh->bKrsz", CP_dim="K", label="QK"),
    op("bKrsz,bKzh->bKrsh", CP_dim="K", label="AV")
]
llm_model.EQS = [
    op("bsm,mi->bsi", CP_dim="s", label="QKV Projection"),
    op("attention", CP_dim="H", label="Attention"),
    op("bsHh,Hhm->bsm", CP_dim="s", label="Output Projection"),
    op("bsm,mF->bsF", CP_dim="s", label="Gate & Up Projection"),
    op("bsf,fm->bsm", CP_dim="s", label="Down Projection")
]
i = (2 + r) * K * h
"#;

/// The names by which commands know the listings.
pub const ALL: [(&str, &str); 4] = [
    ("fused-moe", FUSED_MOE),
    ("unfused-dense", UNFUSED_DENSE),
    ("fused-dense", FUSED_DENSE),
    ("context-dense", CONTEXT_DENSE),
];

/// A listing by its name.
#[must_use]
pub fn named(name: &str) -> Option<&'static str> {
    ALL.iter().find(|it| it.0 == name).map(|it| it.1)
}

/// The inner equations of attention where a specification has none.
pub(super) fn attention() -> Result<Vec<Op>, SpecError> {
    // A list of that name alone is no specification; as another name it is one.
    Spec::parse(&ATTENTION.replace("attn_eqs", "inner")).map(|it| it.ops)
}
