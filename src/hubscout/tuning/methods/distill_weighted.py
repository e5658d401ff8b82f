"""Task-weighted distillation of several sources: the model's probabilities follow each teacher's, by its weight."""

from __future__ import annotations

from hubscout.tuning.methods.logit_distillation import LogitDistillation
from hubscout.tuning.methods.method import METHODS, Preparation
from hubscout.tuning.teacher_answers import SeparateAnswers


@METHODS.register("distill-weighted")
class DistillWeighted(LogitDistillation):
    """Distillation of several teachers, each by its transferability (after DistillWeighted: Borup et al., ICCV 2023).

    For: several teachers that see the task differently, and a model that fits the budget.

        loss = L_task + λ · T² · Σ_k π_k KL( p_k(x_i) ‖ softmax(z(x_i) / T) )
        p_k = softmax( s_k · f_k(x_i)ᵀm_k / T )

    π_k comes from a metric of transferability, here LogME: softmax(LogME_k / temperature), or what `teacher_weights`
    says, one number per teacher. From the paper is the idea: several source models are distilled into one small model,
    each weighted by its relevance for the task. The rest is ours, so what the paper reports is not a promise for this
    method: the paper is semi-supervised and learns the sources' pseudo-labels, here nothing but the labelled train
    split is seen, and every teacher has a probed head for the task's own labels, stretched by its own s_k, or the head
    that it was tuned with.

    Requirements: at least one teacher; `teacher_targets` as for `b-tuning`. What is kept is one C-vector per row
    whatever the number of teachers, since Σ_k π_k KL(p_k ‖ q) is KL(Σ_k π_k p_k ‖ q) and a constant, which is left out.

    Beside `logit-kd`, which mixes outputs and so sharpens what teachers agree on, it mixes probabilities: where the
    teachers disagree, the model learns to be undecided. With one probed teacher the two are the same.

    Example: `tune(task, model, teachers=ranking.top(3), method="distill-weighted", teacher_weights="uniform")`.
    """

    name = "distill-weighted"

    def answers_of(self, preparation: Preparation) -> SeparateAnswers:
        """Each teacher answers for itself; probabilities are mixed."""
        return SeparateAnswers(preparation, self.panel, self.loss, temperature=self.kd_temperature)
