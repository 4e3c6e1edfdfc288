"""The main metrics of each task and their names in tables; of any other task, the first metric of its rows."""

HEADLINE = {
    "zeroshot": {"top1": "zero-shot accuracy"},
    "zeroshot_draws": {
        "top1_mean_over_draws": "zero-shot accuracy, mean of five draws",
        "top1_spread_over_draws": "zero-shot accuracy, standard deviation over five draws",
    },
    "linear_probe": {"top1": "linear probe accuracy"},
    "retrieval": {
        "image_to_text_recall@1": "image → text R@1",
        "text_to_image_recall@1": "text → image R@1",
    },
    "pairs": {"pair_accuracy": "pair accuracy"},
    "geometry": {"gap": "modality gap", "uniformity": "uniformity", "margin_mean": "mean margin"},
    "popularity": {"zeta_text_spearman": "rank correlation of ζ (texts) with popularity"},
}
